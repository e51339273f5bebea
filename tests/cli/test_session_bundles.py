"""Bundles of methods that read sessions, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli
from tests.visits import write_visits

TINY = ("data=retailrocket", "rounds=2", "model.dim=8", "model.length=5", "model.lr=0.01", "engine.shard_size=8")


def simulate(cli: Cli, folder: Path, method: str) -> tuple[int, str, str]:
    chosen = [word for value in (f"method={method}", *TINY) for word in ("--set", value)]
    data = write_visits(folder / "data")
    return cli("simulate", "--data-dir", data, *chosen, "--out", folder / "run")


def test_a_run_over_sessions_says_that_it_wrote_no_bundles(cli: Cli, tmp_path: Path) -> None:
    assert simulate(cli, tmp_path, "gru4rec")[::2] == (0, "")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["bundles"] == []
    assert "gru4rec" in summary["no_bundles"]
    assert not (tmp_path / "run" / "bundles").exists()
    code, _, err = cli("export", "--run", tmp_path / "run", "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (2, 1)
    assert "no bundle of gru4rec" in err
