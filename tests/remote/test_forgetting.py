"""A user leaves: a number stands where the name was, the key is refused, and what was spent stays spent."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from edge.connection import Server as Remote
from edge.connection import enrol
from edgefr.serving.forget import forget
from edgefr.serving.keys import Keys
from edgefr.serving.log import FILE as LOG
from edgefr.serving.log import Log, without
from edgefr.serving.releases import Answers
from edgefr.simulation.runs.lineage import FOLDER, ROUNDS
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError
from privacy.files import write_atomic
from tests.cli.commands import edgefr, refused
from tests.remote.test_server import QUICK, USER, Broker
from tests.remote.test_server import broker as broker
from tests.remote.worlds import fedmf, known, serving, session, take_part, time_up


def holding(folder: Path, name: str) -> list[str]:
    """The files of a run that have a name in them, but for tensors and the data's own."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(path.relative_to(folder).as_posix() for path in found if name.encode() in path.read_bytes())


def test_nothing_of_a_name_is_left_and_what_was_spent_stays_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = fedmf().own(tmp_path)
    run, (gone, other, *_), numbers = twins.begun, list(twins.users), twins.users
    session(twins, tmp_path / "states", 1)
    Keys(run.path).issue([gone, other])
    answers = Answers(run.path)
    for user in (gone, other):
        answers.keep(user, 9, b"a release of a round that is open")
    lineage = (run.path / FOLDER / ROUNDS).read_bytes()
    rows = pq.read_table(run.path / "private/users.parquet").num_rows
    before = holding(run.path, gone)
    assert {"private/keys.jsonl", LOG, "checkpoint/names.json", "private/users.parquet"} <= set(before)
    left = forget(run, gone)
    assert (left.pseudonym, left.rounds) == (f"forgotten-{numbers[gone]}", 1)
    carried = [name for name in before if name.startswith("bundles/")]  # this run's bundles carry users, for tests
    assert holding(run.path, gone) == carried
    assert sorted({"/".join(name.split("/")[:2]) for name in carried}) == list(left.bundles) != []
    assert all(
        any(line.startswith(f"{bundle} is a bundle with users") for line in left.kept) for bundle in left.bundles
    )
    assert set(holding(run.path, other)) >= {"private/keys.jsonl", LOG, "checkpoint/names.json"}
    assert list(answers.of(9, [gone, other])) == [other]
    assert 0 < pq.read_table(run.path / "private/users.parquet").num_rows < rows
    assert (run.path / FOLDER / ROUNDS).read_bytes() == lineage
    with pytest.raises(InputError, match="unknown user"):
        forget(run, gone)
    with pytest.raises(InputError, match="has left already"):
        forget(run, left.pseudonym)
    with pytest.raises(InputError, match="nobody enrols under that name"):
        Keys(run.path).issue([left.pseudonym])
    progress = time_up(monkeypatch, {1: 5, 2: 5})
    with serving(run, tmp_path / "again", rounds=1, min_answers=3, progress=progress) as (url, future):
        take_part(twins, url, tmp_path / "states", [user for user in numbers if user != gone])
        assert future.result(90).summary["missing"] == [1], "the round goes on without who left"


def test_a_server_that_is_at_work_refuses_a_key_that_was_forgotten(broker: Broker) -> None:
    old = broker.identity()
    assert Remote(broker.server.url, old, patience=QUICK).task(0, 1 << 20) is not None
    keys = Keys(broker.folder)
    code = keys.issue(["another"])["another"]
    keys.forget(USER, "forgotten-7")
    with pytest.raises(InputError, match=r"\(403\): this key is not enrolled here"):
        Remote(broker.server.url, old, patience=QUICK).task(0, 1 << 20)
    assert enrol(broker.folder / "new", broker.server.url, code, patience=QUICK).record.user == "another"
    keys.forget("another", "forgotten-8")
    keys.forget("another", "forgotten-8")
    lines = keys.path.read_text().splitlines()
    assert [line.count("forgotten") for line in lines] == [2, 2]
    assert keys.path.stat().st_mode & 0o077 == 0


def test_what_a_kill_left_of_a_line_is_nobody_when_somebody_leaves(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    keys.issue(["ada", "bob"])
    with open(keys.path, "ab") as file:
        file.write(b'{"kind":"enrolled","code":"00')
    keys.forget("ada", "forgotten-1")
    again = Keys(tmp_path)
    again.look()
    assert (set(again.codes), again.forgotten) == ({"bob"}, {"forgotten-1"})
    content = keys.path.read_bytes()
    keys.path.write_bytes(content[:-1])
    with pytest.raises(InputError, match="was cut"):
        again.look()


def test_a_log_that_was_forgotten_in_goes_on(tmp_path: Path) -> None:
    log = Log(tmp_path / "private" / "serve.log")
    (tmp_path / "private").mkdir()
    log.write("taken", user="ada", round=1, bytes=3)
    log.write("taken", user="ada lovelace", round=1, bytes=3)
    without(tmp_path / LOG, "ada")
    log.write("stopped")
    lines = (tmp_path / LOG).read_text().splitlines()
    assert ["lovelace" in line for line in lines] == [True, False]
    for number in range(200):
        log.refused(status=404, method="GET", path="another", why=str(number))
    assert len((tmp_path / LOG).read_text().splitlines()) <= 2 + 2 * 61


def test_a_server_that_writes_meanwhile_loses_no_line_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that comes between reading the log and putting another in its place is in the new one."""
    path = tmp_path / LOG
    path.parent.mkdir()
    for user in ("ada", "bob"):
        Log(path).write("taken", user=user, round=1)
    with ThreadPoolExecutor(1) as pool:

        def replaced(*given: Any, **more: Any) -> None:
            writing = pool.submit(Log(path).write, "taken", user="bob", round=2)
            wait([writing], 0.5)  # nobody who waits for the lock writes before it is free
            write_atomic(*given, **more)

        monkeypatch.setattr("edgefr.serving.log.write_atomic", replaced)
        without(path, "ada")
    assert [json.loads(line)["round"] for line in path.read_text().splitlines()] == [1, 2]


def test_the_command_line_forgets_by_name_or_key(tmp_path: Path) -> None:
    twins = fedmf().own(tmp_path)
    (user, other, *_), numbers = list(twins.users), twins.users
    key = known(twins.begun, tmp_path / "device", other).key
    done = edgefr("forget", twins.begun.path, "--user", user, cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{user} is forgotten here, and is forgotten-{numbers[user]} now.")
    assert "training takes nothing back" in done.stdout
    done = edgefr("forget", twins.begun.path, "--key", key, cache=tmp_path)
    assert done.stdout.startswith(f"{other} is forgotten here")
    done = edgefr("forget", twins.begun.path, "--key", key, cache=tmp_path)
    assert "this key is nobody's" in refused(done.returncode, done.stdout, done.stderr)
    done = edgefr("forget", twins.begun.path, cache=tmp_path)
    assert "give --user or --key" in refused(done.returncode, done.stdout, done.stderr)
    assert Run(twins.begun.path).experiment is not None
