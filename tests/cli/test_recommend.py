"""`edgefr recommend` and `edgefr device recommend` say what a list is ranked by."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.contract import bundles
from tests.devices import policy_file
from tests.export import worlds

NEW = "this device has no history"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("pfedrec", f"for a new device: the model's order for nobody in particular, since {NEW}"),
        ("fedmf", f"for a new device: no ranking yet, since {NEW}"),
    ],
)
def test_a_new_device_is_told_what_a_list_is_ranked_by(kind: str, said: str, cli: Cli) -> None:
    out = cli.done("recommend", worlds.exported(kind)[0] / "laptop", "--k", "3")
    assert " ".join(out.split()).startswith(said)
    assert "score" not in out
    assert out.count("│ i") == (0 if kind == "fedmf" else 3)


def test_scores_are_shown_where_they_are_a_users_own(cli: Cli) -> None:
    code, out, _ = cli("recommend", worlds.exported("fedmf")[0] / "laptop", "--k", "3", "--user", "u4")
    assert code == 0
    assert out.splitlines()[0].strip() == "for u4"
    assert "score" in out


def test_a_device_has_no_ranking_until_it_has_learned(tmp_path: Path, cli: Cli) -> None:
    bundle, state = bundles.bundle("fedmf"), tmp_path / "state"
    arguments = ("device", "recommend", bundle, "--state", state, "-k", "2")
    state.mkdir()
    (state / "policy.yaml").write_bytes(policy_file(tmp_path).read_bytes())
    code, out, _ = cli(*arguments, "--explain")
    assert (code, out.strip()) == (0, f"for this device: no ranking yet, since {NEW}")
    assert cli("device", "learn", bundle, "--state", state, "--item", "i1", "--item", "i2")[0] == 0
    code, out, _ = cli(*arguments)
    assert code == 0
    assert out.splitlines()[0].strip() == "for this device"
    assert out.count("│ item ") == 2
