"""A run and all that is served from it are one lineage: one counter of rounds, one ledger, and nobody goes on from
anything but its end."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgefr.serving.serve import serve
from edgefr.simulation.runs.lineage import (
    FOLDER,
    ROUNDS,
    SHARED,
    WITNESS,
    Begun,
    Closed,
    Journal,
    Lineage,
    Opened,
    Started,
    digest_of,
)
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError
from privacy.report import ledger_report
from tests.cli.commands import edgefr, refused
from tests.closeness import assert_same
from tests.remote import worlds
from tests.remote.worlds import CLASS, Twins, noisy, session


def lines(run: Run) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run.path / FOLDER / ROUNDS).read_bytes().splitlines()]


def test_a_second_serve_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    twins = worlds.fedmf().own(tmp_path)  # without noise: the same as in one go, value for value
    first, second = session(twins, tmp_path / "states", 2), session(twins, tmp_path / "states", 1)
    assert [served.path.name for served in (first, second)] == ["served", "served-2"]
    assert (first.summary["first_round"], second.summary["first_round"]) == (1, 3)
    expected = twins.simulated.read_tensors("model")["shared.item"]
    assert_same(second.shared["item"], expected.numpy())
    assert [line["round"] for line in lines(twins.begun) if line["kind"] == "opened"] == [1, 2, 3]
    assert second.summary["lineage"]["head"] == twins.begun.lineage.head


def test_three_serves_of_one_run_print_what_they_cost_together_and_keep_one_budget(tmp_path: Path) -> None:
    twins = noisy(tmp_path, privacy__sigma=2.0, privacy__budget=2.0)  # epsilon of a release: .707
    spent = [session(twins, tmp_path / "states", 1).summary["privacy"] for _ in range(2)]
    assert [round(one["eps_guaranteed"], 2) for one in spent] == [0.71, 1.41]
    with pytest.raises(InputError, match="all 6 clients have spent the budget, an epsilon of 2"):
        serve(twins.begun, CLASS, 1, ready=lambda url: None)
    report = {"delta": spent[0]["delta"], "adjacency": spent[0]["adjacency"]}
    ledger = twins.begun.read_ledger(report)
    assert ledger is not None
    assert ledger_report(ledger) == spent[-1]


def test_the_epsilon_that_is_promised_is_that_of_the_whole_lineage(tmp_path: Path) -> None:
    twins = noisy(tmp_path, privacy__sigma=None, privacy__epsilon=3.0)
    served = session(twins, tmp_path / "states", 2)
    assert served.summary["privacy"]["eps_guaranteed"] == pytest.approx(3.0, rel=1e-3)
    assert served.summary["privacy"]["eps_guaranteed"] <= 3.0
    with pytest.raises(InputError, match=r"an epsilon of 3 is promised, of which 3 is spent; of 2 rounds more none"):
        serve(twins.begun, CLASS, 2, ready=lambda url: None)
    assert twins.begun.lineage.round == 2


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    twins = noisy(tmp_path)
    with Journal.locked(twins.begun.path):
        done = edgefr("serve", twins.begun.path, "--bundle-class", CLASS, "--rounds", "1", cache=tmp_path)
    assert "is being served by another process" in refused(done.returncode, done.stdout, done.stderr)


def test_simulated_and_served_stand_apart_and_together(tmp_path: Path) -> None:
    twins = noisy(tmp_path)
    session(twins, tmp_path / "states", 2)
    done = edgefr("privacy", twins.begun.path, "--json", cache=tmp_path)
    found = json.loads(done.stdout)
    assert found["simulated"]["eps_guaranteed"] == 0.0
    assert found["ledger"] == found["served"]
    assert found["served"]["releases_per_client"]["max"] == 2
    shown = edgefr("privacy", twins.begun.path, cache=tmp_path).stdout
    assert "ledger, simulated and served" in shown
    assert "of that served" in shown


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    folder = tmp_path_factory.mktemp("lineage")
    twins = noisy(folder)
    session(twins, folder / "states", 2)
    return twins


@pytest.fixture
def copy(whole: Twins, tmp_path: Path) -> Run:
    return Run(shutil.copytree(whole.begun.path, tmp_path / "copy"))


def test_a_line_that_a_kill_left_unfinished_is_dropped(copy: Run) -> None:
    before, path = copy.lineage, copy.path / FOLDER / ROUNDS
    with open(path, "ab") as file:
        file.write(b'{"kind":"opened","round":3,"bundle":"00')
    assert copy.lineage == before
    with Journal.locked(copy.path) as journal:
        journal.append(Opened(round=3, bundle="0" * 64, event=None, clients=[1], refused=[]))
    assert copy.lineage.round == 3
    assert len(lines(copy)) == len(before.lines) + 1


def changed(at: int, old: bytes, new: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda text: [line.replace(old, new) if n == at else line for n, line in enumerate(text)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed(2, b'"clients":[', b'"clients":[9,'), "changed or damaged at line 3"),
        (changed(0, b'"budget":null', b'"budget":99.0'), "changed or damaged at line 1"),
        (lambda text: text[:2] + text[3:], "changed or damaged at line 3"),
        (lambda text: text[1:], "changed or damaged at line 1"),
        (lambda text: text[:3], "is not the one of this run's served rounds"),
        (lambda text: [], "is not the one of this run's served rounds"),
        (lambda text: [*text, b"{}\n"], "changed or damaged at line 6"),
        (lambda text: [*text, text[-1]], "changed or damaged at line 6"),
        (lambda text: [*text, b"\xff\xfe\n"], "changed or damaged at line 6"),
    ],
)
def test_a_file_that_was_changed_or_cut_is_refused(
    copy: Run, change: Callable[[list[bytes]], list[bytes]], words: str
) -> None:
    path = copy.path / FOLDER / ROUNDS
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(InputError, match=words):
        copy.lineage  # noqa: B018
    with pytest.raises(InputError, match=words):
        serve(copy, CLASS, 1, ready=lambda url: None)


def begin(journal: Journal) -> None:
    """A lineage whose open round waits for nobody, and in which two have started."""
    run = digest_of(journal.run / "experiment.yaml")
    assert run is not None
    journal.append(Begun(run=run, model="0" * 64, ledger=None, round=0, clients=3, terms=None))
    journal.append(Opened(round=1, bundle="0" * 64, event=None, clients=[], refused=[], buffered=True))
    journal.append(Started(round=1, clients=[2]))
    journal.append(Started(round=1, clients=[0]))


def test_no_line_of_a_round_that_is_open_can_be_cut_off(tmp_path: Path) -> None:
    """Whoever was offered the round may have released, though it was never closed."""
    (tmp_path / "experiment.yaml").write_text("seed: 1\n")
    with Journal.locked(tmp_path) as journal:
        begin(journal)
    path = tmp_path / FOLDER / ROUNDS
    text = path.read_bytes()
    for left in range(len(text)):
        path.write_bytes(text[:left])
        with pytest.raises(InputError, match="more was released than it tells"):
            Lineage.of(tmp_path)
    path.write_bytes(text)
    assert Lineage.of(tmp_path).rounds[0][0].clients == [2, 0]


def test_a_kill_between_a_line_and_what_remembers_it_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "experiment.yaml").write_text("seed: 1\n")
    with Journal.locked(tmp_path) as journal:
        begin(journal)
        with monkeypatch.context() as killed:
            killed.setattr("edgefr.simulation.runs.lineage.write_json", lambda *given, **named: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                journal.append(Started(round=1, clients=[1]))
    with Journal.locked(tmp_path) as journal:
        assert journal.lineage.rounds[0][0].clients == [2, 0, 1]
    path = tmp_path / FOLDER / ROUNDS  # from here on it may be offered, so it is remembered
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(InputError, match="more was released than it tells"):
        Lineage.of(tmp_path)


def test_who_looks_while_a_line_is_added_is_told_of_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "experiment.yaml").write_text("seed: 1\n")
    with Journal.locked(tmp_path) as journal:
        begin(journal)
        read = Path.read_bytes

        def and_goes_on(path: Path) -> bytes:
            content = read(path)
            if path.name == ROUNDS and journal.lineage.open is not None:
                journal.append(Closed(round=1, clients=[0, 2], tensors=None, burnt=False))
            return content

        monkeypatch.setattr(Path, "read_bytes", and_goes_on)
        assert Lineage.of(tmp_path).open is not None
        assert Lineage.of(tmp_path).open is None


@pytest.mark.parametrize("left", [WITNESS, "served/summary.json"])
def test_a_lineage_that_was_removed_is_missed_by_what_is_left(copy: Run, left: str) -> None:
    shutil.rmtree(copy.path / FOLDER)
    for name in {WITNESS, "served/summary.json"} - {left}:
        (copy.path / name).unlink()
    with pytest.raises(InputError, match="more was released than it tells"):
        serve(copy, CLASS, 1, ready=lambda url: None)


def test_other_tensors_or_another_model_are_refused(copy: Run, whole: Twins) -> None:
    (copy.path / FOLDER / SHARED).unlink()
    with pytest.raises(InputError, match="is not what the last served round left"):
        serve(copy, CLASS, 1, ready=lambda url: None)
    shutil.copy(whole.begun.path / FOLDER / SHARED, copy.path / FOLDER / SHARED)
    content = bytearray((copy.path / FOLDER / SHARED).read_bytes())
    content[-1] ^= 1
    (copy.path / FOLDER / SHARED).write_bytes(content)
    with pytest.raises(InputError, match="is not what the last served round left"):
        serve(copy, CLASS, 1, ready=lambda url: None)
    shutil.copy(whole.begun.path / FOLDER / SHARED, copy.path / FOLDER / SHARED)
    model = copy.read_tensors("model")
    copy.write_tensors("model", {name: value + 1 if name == "shared.item" else value for name, value in model.items()})
    with pytest.raises(InputError, match=r"is not the run's|is not as it was"):
        serve(copy, CLASS, 1, ready=lambda url: None)


def test_settings_that_were_changed_after_devices_released_are_refused(copy: Run) -> None:
    text = (copy.path / "experiment.yaml").read_text()
    (copy.path / "experiment.yaml").write_text(re.sub(r"sigma: .*", "sigma: 0.1", text))
    with pytest.raises(InputError, match=r"experiment\.yaml is not the one that"):
        serve(copy, CLASS, 1, ready=lambda url: None)


def test_a_round_that_a_kill_left_open_is_burnt_where_another_bundles_devices_come_next(copy: Run) -> None:
    before = copy.lineage.tensors
    event = next(line.event for line in copy.lineage.lines if isinstance(line, Opened))
    with Journal.locked(copy.path) as journal:
        journal.append(Opened(round=3, bundle="0" * 64, event=event, clients=[0, 4], refused=[]))
    with pytest.raises(InputError, match="in none of 1 rounds did 3 devices"):
        serve(copy, CLASS, 1, timeout_s=0.1, ready=lambda url: None)
    burnt, last = copy.lineage.rounds[-2:]
    assert burnt[1] == Closed(round=3, clients=[0, 4], tensors=before, burnt=True)
    assert (last[0].round, last[1].clients) == (4, [])  # type: ignore[union-attr]
    ledger = copy.lineage.ledger()
    assert ledger is not None
    np.testing.assert_array_equal(ledger.releases(), [3, 2, 2, 2, 3, 2])


def test_a_lineage_needs_its_rounds_in_order() -> None:
    first = Opened(round=1, bundle="0" * 64, event=None, clients=[1], refused=[])
    with pytest.raises(ValueError, match="begins with its first line"):
        Lineage()._check(first)
