"""Bundles of methods that read sessions, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

from edge.recommender import Recommender
from edge.update import read_update
from edgefr.fleet.calibrations.probe import learn
from tests.cli.conftest import Cli
from tests.devices import policy_file
from tests.visits import USERS, write_visits

TINY = ("data=retailrocket", "rounds=2", "model.dim=8", "model.length=5", "model.lr=0.01", "engine.shard_size=8")


def asked(folder: Path, method: str, *more: str) -> tuple[str | Path, ...]:
    chosen = [word for value in (f"method={method}", *TINY, *more) for word in ("--set", value)]
    data = folder / "data"
    if not data.exists():
        write_visits(data)
    return ("simulate", "--data-dir", data, *chosen, "--out", folder / "run")


def test_a_run_over_sessions_whose_scores_no_device_has_is_refused_before_training(cli: Cli, tmp_path: Path) -> None:
    simulate, run = asked(tmp_path, "gru4rec", "sessions.history_bonus=2"), tmp_path / "run"
    line = cli.refused(*simulate, "--bundles")
    assert "history_bonus" in line
    assert "--no-bundles" in line
    assert not run.exists()
    cli.done(*simulate, "--no-bundles")
    assert json.loads((run / "summary.json").read_text())["bundles"] == []
    assert not (run / "bundles").exists()
    assert "history_bonus" in cli.refused("export", "--run", run, "--out", tmp_path / "out")


def test_bundles_of_a_run_over_sessions_recommend_and_learn(cli: Cli, tmp_path: Path) -> None:
    cli.done(*asked(tmp_path, "fcucr"))
    rows = json.loads((tmp_path / "run" / "summary.json").read_text())["bundles"]
    assert all(row["max_score_error"] < 1e-4 and row["top10_equal"] == 1 for row in rows if row["parity_users"])
    assert sum(row["parity_users"] for row in rows) == USERS
    cli.done("export", "--run", tmp_path / "run", "--out", tmp_path / "carried", "--with-users")
    place = tmp_path / "carried" / next(row["class"] for row in rows if row["parity_users"])
    made = Recommender(place)
    out = cli.done("recommend", place, "--user", made.users[0], "--k", "3")
    assert made.recommend(1, made.users[0])[0][0] in out
    items = made.catalogue.ids
    assert made.recommend(3, history=items[:4]) != made.recommend(3, history=items[3::-1]), "the order is read"
    assert made.recommend(3, history=items[:9]) == made.recommend(3, history=items[4:9]), "five items are read"
    assert len(made.recommend(3)) == 3, "a new device has no session"

    state, release = tmp_path / "state", tmp_path / "release"
    device = ("device", "learn", place, "--state", state, "--user", made.users[0])
    out = cli.done(*device, "--out", release, "--policy", policy_file(tmp_path))
    assert "4 of 4" in out
    learning = made.bundle.config.learning
    assert learning is not None
    sent = read_update(release.read_bytes(), learning, made.bundle.manifest.bundle_id)
    assert sent.round == 3, "the round after those of the run"
    assert sent.prototype is None, "asked for before training, not sent with the update"
    assert learning.sessions is not None
    assert (learning.sessions.order, learning.sessions.gap_s) == ("received", 1800)
    items = [word for item in made.catalogue.ids[:2] for word in ("--item", item)]
    _ = cli.done("device", "learn", place, "--state", tmp_path / "new", *items)
    line = cli.refused("device", "learn", place, "--state", tmp_path / "newer", *items[:2])
    assert "fewer than two items" in line
    figures = learn(place, started=0.0, seconds=0.0, least=2)
    assert [len(phase["points"]) for phase in figures["phases"]] == [2]
