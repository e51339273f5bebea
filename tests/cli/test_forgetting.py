"""A run is trained anew without who leaves: it is the run that never had them, and the others' ledger goes on."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgefr.data.datasets import load
from edgefr.data.filtering import of_users
from edgefr.simulation.retrain import retrain
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.successor import Successor
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.ledger import Ledger
from tests.cli.commands import COMMAND, ROOT, done, edgefr, environment, refused
from tests.remote.worlds import noisy, session

GONE = "person7"
SETTINGS = ["method=fedmf", "rounds=4", "model.dim=4", "clients_per_round=0.5", "protocol.negatives=20"]
SETTINGS += ["evaluation.every=4", "fleet.share={laptop_x86: 1.0}"]
NOISE = ["privacy.mechanism=gaussian", "privacy.clip=1.0", "privacy.epsilon=8"]


def table(folder: Path, without: str = "") -> Path:
    """A file of 24 users with 13 films each; the film `own` is one that person7 alone has."""
    draws, rows = random.Random(5), []
    for user in range(24):
        films = [f"film{film}" for film in sorted(draws.sample(range(50), 12))] + (["own"] if user == 7 else ["film50"])
        rows += [f"person{user},{film},{1000 + place}" for place, film in enumerate(films)]
    folder.mkdir(parents=True)
    kept = [row for row in rows if not without or not row.startswith(f"{without},")]
    (folder / "rated.csv").write_text("\n".join(["user,item,time", *kept, ""]))
    return folder / "rated.csv"


def simulated(data: Path, out: Path, *settings: str, key: Path | None = None, bundles: bool = False) -> Path:
    arguments = [part for setting in (*SETTINGS, *settings) for part in ("--set", setting)]
    arguments += [] if key is None else ["--noise-key", str(key)]
    arguments += [] if bundles else ["--no-bundles"]
    arguments += ["--devices", str(ROOT / "devices.yaml"), "--out", str(out), "--quiet"]
    done("simulate", "--data", data.name, *arguments, cache=out.parent, cwd=data.parent)
    return out


def state(run: Path) -> tuple[dict[str, object], dict[str, bytes]]:
    """Names of users and items, and every tensor's bytes."""
    names = json.loads((run / "checkpoint/names.json").read_text())
    tensors = load_file(run / "checkpoint/model.safetensors")
    return {n: names[n] for n in ("users", "items")}, {n: v.tobytes() for n, v in tensors.items()}


def holding(folder: Path, name: str) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and name.encode() in path.read_bytes()]


def test_the_result_is_bit_for_bit_the_run_that_never_had_them_and_the_ledger_counts_both(tmp_path: Path) -> None:
    run = simulated(table(tmp_path / "a"), tmp_path / "run", *NOISE, bundles=True)
    first = Run(run).read_ledger(Run(run).summary["privacy"])
    said = done("forget", run, "--user", GONE, "--unlearn", cache=tmp_path)
    new = tmp_path / "run-unlearned"
    key = new / "private/noise.key"
    assert key.read_text() != (run / "private/noise.key").read_text(), "the same noise would cancel, and show who left"
    never = simulated(table(tmp_path / "b", GONE), tmp_path / "never", *NOISE, key=key)
    assert state(new) == state(never) != state(run)
    assert "own" not in state(new)[0]["items"]
    assert holding(new, GONE) == [] != holding(new, "person8")
    assert not any("person7" in path for path in holding(run, GONE)), "paths alone"
    assert first is not None
    counted = [Run(path).read_ledger(Run(path).summary["privacy"]) for path in (new, never)]
    others = np.delete(np.arange(24), 7)
    assert counted[0].releases().tolist() == (first.releases()[others] + counted[1].releases()).tolist()  # type: ignore[union-attr]
    spent = [Run(path).summary["privacy"]["eps_guaranteed"] for path in (run, new, never)]
    assert spent[1] > max(spent[0], spent[2])
    assert f"ledger goes on: epsilon {spent[1]:.3g} in all, {spent[0]:.3g} before" in said
    assert f"items that {GONE} trained on, told from" in said
    assert "delete the run, for which" in said
    assert (new / "publisher.pem").read_bytes() == (run / "publisher.pem").read_bytes(), (
        "devices go on with its bundles"
    )
    message = refused(*_result("serve", run, "--rounds", "1", cache=tmp_path))
    assert f"{new} stands in for {run}" in message
    message = refused(
        *_result("forget", run, "--user", "person3", "--unlearn", "--out", tmp_path / "c", cache=tmp_path)
    )
    assert "stands in for" in message
    done("forget", new, "--user", "person3", "--unlearn", cache=tmp_path)  # one after the other, by the same data
    last = Run(tmp_path / "run-unlearned-unlearned")
    assert state(last.path)[0]["users"] == [f"person{n}" for n in range(24) if n not in (3, 7)]
    assert last.summary["privacy"]["eps_guaranteed"] > spent[1]


def _result(*arguments: str | Path, cache: Path) -> tuple[int, str, str]:
    found = edgefr(*arguments, cache=cache)
    return found.returncode, found.stdout, found.stderr


def test_a_budget_that_would_be_exceeded_and_unknown_names_are_refused_before_any_work(tmp_path: Path) -> None:
    run = simulated(table(tmp_path / "a"), tmp_path / "run", *NOISE, "privacy.budget=9")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for who, what in ((GONE, "over the privacy.budget of 9, of which"), ("nobody", "unknown user 'nobody'")):
        assert what in refused(*_result("forget", run, "--user", who, "--unlearn", cache=tmp_path))
        assert not (tmp_path / "run-unlearned").exists()
    assert {path: path.read_bytes() for path in before} == before
    (tmp_path / "taken").mkdir()
    shutil.copy2(ROOT / "devices.yaml", tmp_path / "taken")
    arguments = ("forget", run, "--user", GONE, "--unlearn", "--out", tmp_path / "taken")
    assert "already holds other files" in refused(*_result(*arguments, cache=tmp_path))
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["devices.yaml"]
    message = refused(*_result("forget", run, "--user", GONE, "--out", tmp_path / "new", cache=tmp_path))
    assert "--out is where a run is trained anew: give --unlearn with it" in message
    assert done("forget", run, "--user", GONE, cache=tmp_path).startswith(f"{GONE} is forgotten here")
    wide = simulated(tmp_path / "a/rated.csv", tmp_path / "wide", *NOISE, "privacy.budget=14")
    assert "epsilon" in done("forget", wide, "--user", GONE, "--unlearn", cache=tmp_path)


def test_unlearning_that_was_killed_is_repeated_to_the_same_end(tmp_path: Path) -> None:
    run, new = simulated(table(tmp_path / "a"), tmp_path / "run", "rounds=40"), tmp_path / "run-unlearned"
    never = simulated(table(tmp_path / "b", GONE), tmp_path / "never", "rounds=40")
    Successor.without(Run(run), [GONE]).write(Run.create(new))  # killed before its first file was whole
    command = [*COMMAND, "forget", str(run), "--user", GONE, "--unlearn"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(tmp_path), stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not (new / "events.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (new / "summary.json").exists()
    message = refused(*_result("forget", run, "--user", "person3", "--unlearn", cache=tmp_path))
    assert f"{new} already holds another run" in message
    done("forget", run, "--user", GONE, "--unlearn", cache=tmp_path)
    assert state(new) == state(never)
    assert holding(new, GONE) == []


def test_served_rounds_are_given_up_and_stay_charged(tmp_path: Path) -> None:
    twins = noisy(tmp_path, privacy__epsilon=None)
    (user, *_), run = list(twins.users), twins.begun
    others = [number for name, number in twins.users.items() if name != user]
    with pytest.raises(InputError, match="no round had data of who leaves"):
        retrain(run, [user])
    session(twins, tmp_path / "states", 2)
    spent = run.read_ledger(run.summary["privacy"])
    said = done("forget", run.path, "--user", user, "--unlearn", cache=tmp_path)
    assert f"2 served rounds, 2 of them with {user}, are not in it: their data are on devices" in said
    new = Run(tmp_path / "begun-unlearned")
    assert not new.lineage.rounds
    left = new.read_ledger(new.summary["privacy"])
    assert spent is not None
    assert left is not None
    assert left.releases().tolist() == spent.releases()[others].tolist() == [2] * len(others)


@pytest.mark.parametrize("cores", [{}, {"user_core": 6, "item_core": 5}])
def test_a_data_set_without_a_user_is_the_one_of_a_file_that_lacks_them(cores: dict[str, int], tmp_path: Path) -> None:
    names = [f"person{number}" for number in range(24) if number != 7]
    found = load(str(table(tmp_path / "a")), options=cores, users=names)
    wanted = load(str(table(tmp_path / "b", GONE)), options=cores)
    for name in ("users", "user", "item", "time", "offsets"):
        assert getattr(found, name).tolist() == getattr(wanted, name).tolist()
    assert found.catalogue.ids.tolist() == wanted.catalogue.ids.tolist()
    assert "without users who left: 1 of" in found.source["notes"]
    with pytest.raises(InputError, match="nobody of 'rated' is left"):
        of_users(found, [GONE])


def test_a_ledger_of_some_clients_numbers_them_anew() -> None:
    ledger = Ledger(4, delta=1e-5, adjacency="zero-out", budget=9.0)
    ledger.spend([1, 3], Event("gaussian", multiplier=4.0), times=3)
    ledger.spend([3], Event("gaussian", multiplier=2.0))
    some = ledger.of_clients([3, 0])
    assert (some.releases().tolist(), some.budget, len(some)) == ([4, 0], 9.0, 2)
    some.spend([1], Event("gaussian", multiplier=2.0))
    assert ledger.releases().tolist() == [0, 3, 0, 4], "the other is as it was"
