"""Worker processes: the same bits as in one process, and nothing left behind however a run ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.aggregate import ReleaseTerms
from edgefr.engine.backends import processes, shared_memory
from edgefr.engine.backends.backend import Backend, Inline
from edgefr.engine.backends.processes import Workers
from edgefr.engine.backends.shared_memory import SegmentReader, Shelf, sealed
from edgefr.engine.federation import Federation
from edgefr.engine.noise import SimulatedNoise
from edgefr.methods.fcucr.parts import DISTILL_WEIGHTS, PROTOTYPE_FORMS, TEACHERS
from edgefr.methods.fedcar.parts import NEGATIVES
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.transfr.parts import HEADS
from export.batches import One
from export.program import LocalProgram, Phase, Tensors
from privacy.errors import InputError
from tests.cli.commands import hear_interrupts
from tests.contract import sessions
from tests.contract.programs import CLIENTS, ITEMS, VARIANTS, program, work
from tests.contract.test_executors import Remembered
from tests.federations import federation as made_federation
from tests.mostly_slow import mostly_slow
from tests.noises import KEY

EVERYONE = np.arange(CLIENTS)
PLAIN = ReleaseTerms(None, "l2", False, False)
COUNTS = (1, 3)


class Pool:
    """One backend whose number of workers changes: starting a process takes seconds, so few are started.

    `spare` gives one of them to a test that ends it.
    """

    def __init__(self) -> None:
        self.backend = Workers(max(COUNTS))
        self.all: list[Any] = []

    def of(self, count: int) -> Workers:
        """The backend with `count` workers, none of which has been told anything."""
        if len(self.all) < count:
            self.backend.count, self.backend.started[:] = max(COUNTS), self.all
            run(self.backend, program("fedmf"))
            self.all = list(self.backend.started)
        self.backend.count, self.backend.started[:], self.backend._setting = count, self.all[:count], None
        return self.backend

    def spare(self) -> Workers:
        """A backend of one worker, which is no longer the pool's: one that is there, or none yet."""
        backend = Workers(1)
        if self.all:
            backend.started.append(self.all.pop())
        return backend


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool()
    yield made
    made.backend.started[:] = made.all
    made.backend.close()


def shards(size: int) -> list[np.ndarray]:
    return [EVERYONE[at : at + size] for at in range(0, CLIENTS, size)]


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids: list[int], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(alive(pid) for pid in pids):
        time.sleep(0.02)
    return not any(alive(pid) for pid in pids)


def pids(backend: Workers) -> list[int]:
    return [worker.process.pid or 0 for worker in backend.started]


def segments(backend: Workers) -> list[str]:
    """Names of the segments that hold anything: what workers were told, and their results."""
    results = [segment.segment for worker in backend.started for segment in worker.told.values() if segment is not None]
    return [shelf.memory.name for shelf in backend._shelves.values() if shelf.memory is not None] + results


def unlinked(names: list[str]) -> bool:
    for name in names:
        try:
            SharedMemory(name).close()
        except FileNotFoundError:
            continue
        return False
    return True


# --- the same bits ----------------------------------------------------------------------------------------------------

CASES: dict[str, tuple[str, dict, dict]] = {
    "fedmf": ("fedmf", {}, {}),
    "dense layers and text": ("transfr vector", {}, {}),
    "history": ("transfr mean", {"weights": "size"}, {}),
    "clip and noise": ("fedmf", {}, {"mechanism": "gaussian", "clip": 0.5, "sigma": 1.0}),
    "every update": ("fedmf", {"rule": "krum"}, {"clip": 0.5}),
    "every dense update": ("transfr vector", {"rule": "median"}, {}),
    "replay": ("fedmf", {}, {}),
    "projected": ("fedmf", {}, {"clip": 0.3, "project": 40}),
}


SIZES = {"dense layers and text": 1, "history": 1, "clip and noise": 1}
"""Clients of a shard where it is not 4: with so many shards a block has several."""


def rounds(case: str, backend: Backend | None) -> tuple[Federation, dict[str, torch.Tensor]]:
    """Three rounds of a federation, the last with another block's sampler, and local training where there is any."""
    variant, aggregation, privacy = CASES[case]
    local = program(variant, local_epochs=1)
    how: dict[str, Any] = {"seed": 1, "shard_size": SIZES.get(case, 4), "noise": SimulatedNoise(KEY, 1)}
    made = made_federation(local, CLIENTS, aggregation, privacy, backend=backend, **how)
    if case == "replay":
        made.memory = Remembered()
        made.private["memory.labels"] = torch.from_numpy(np.random.default_rng(8).random((CLIENTS, ITEMS), np.float32))
    first, other = work(local), work(local, train=Ragged.from_lists([[c % ITEMS, 7] for c in range(CLIENTS)]))
    for number, block in enumerate((first, first, other), 1):
        made.round(number, EVERYONE[number:], block.sampler, block.context)
    return made, made.personalise(EVERYONE, first.sampler, first.context, made.private, 9)


@pytest.mark.parametrize("case", mostly_slow(CASES, ("fedmf", "dense layers and text", "projected")))
def test_any_number_of_workers_gives_the_bits_of_one_process(
    case: str, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "SMALL", 1)  # everything goes through shared memory
    expected, personal = rounds(case, None)
    start = program(CASES[case][0]).init_shared(1)
    assert any(not torch.equal(start[name], value) for name, value in expected.shared.items())
    for count in COUNTS:
        found, own = rounds(case, pool.of(count))
        for one, other in ((found.shared, expected.shared), (found.private, expected.private), (own, personal)):
            assert one.keys() == other.keys()
            assert all(torch.equal(one[name], other[name]) for name in other)
        for name in ("clients", "dropped", "clipped"):
            assert getattr(found.counters, name) == getattr(expected.counters, name)
        assert found.counters.norms.values.tolist() == expected.counters.norms.values.tolist()
        assert len(pool.backend.started) == count


def test_every_program_and_its_parts_go_along_to_workers() -> None:
    parts = [
        entry for table in (HEADS, TEACHERS, DISTILL_WEIGHTS, PROTOTYPE_FORMS, NEGATIVES) for entry in table.values()
    ]
    for thing in (*map(program, VARIANTS), *map(sessions.program, sessions.VARIANTS), *parts):
        assert sealed(thing)


def large(backend: Backend, items: int) -> torch.Tensor:
    """The table after three rounds whose sums of rows are more than a pipe should carry, in several blocks."""
    local = FedMF(FedMFSettings(dim=16), items, 1)
    rng = np.random.default_rng(items)
    train = Ragged.from_lists([rng.choice(items, 60, replace=False).tolist() for _ in range(40)])
    made = made_federation(local, 40, seed=1, shard_size=1, backend=backend)
    for number in range(1, 4):
        made.round(number, np.arange(40), Sampler(train, np.arange(items), items, 4, 32, 0), train)
    return made.shared["item"]


def test_large_sums_come_through_shared_memory_whose_segments_grow(pool: Pool) -> None:
    backend = pool.of(2)
    for items in (1000, 3000):
        assert torch.equal(large(backend, items), large(Inline(), items))
        kept = [segment for worker in backend.started for segment in worker.told.values() if segment is not None]
        assert kept
        assert len(kept) <= (processes.AHEAD + 1) * 2 * 2
        assert all(len(worker.reader.open) <= len(worker.told) for worker in backend.started)


# --- faults -----------------------------------------------------------------------------------------------------------


class Faulty(FedMF):
    """FedMF whose loss raises what it is told to."""

    def __init__(self, fault: Exception):
        super().__init__(FedMFSettings(dim=4), ITEMS, 1)
        self.fault = fault

    def loss(self, tensors: Tensors, batch: One, phase: Phase) -> torch.Tensor:
        raise self.fault


def run(backend: Backend, local: LocalProgram, size: int = 3, **changes: Any) -> list[Any]:
    private = local.init_private(0, torch.from_numpy(EVERYONE))
    return list(backend.releases(replace(work(local), **changes), PLAIN, local.init_shared(0), private, shards(size)))


def test_a_fault_comes_back_and_a_caller_may_stop_midway(pool: Pool) -> None:
    """Either way nothing is left, and the next round has a new worker."""
    backend, local = pool.spare(), program("fedmf")
    with pytest.raises(RuntimeError, match=r"(?s)failed in round 2, block .*ZeroDivisionError: nothing to share"):
        run(backend, Faulty(ZeroDivisionError("nothing to share")))
    assert not backend.started
    backend = pool.spare()
    with pytest.raises(InputError, match=r"^use another file$"):
        run(backend, Faulty(InputError("use another file")))
    private = local.init_private(0, torch.from_numpy(EVERYONE))
    some = backend.releases(work(local), PLAIN, local.init_shared(0), private, shards(1))
    next(some)
    running, names = pids(backend), segments(backend)
    del some
    assert not backend.started
    assert gone(running)
    assert unlinked(names)


def test_a_killed_worker_is_an_error_and_leaves_nothing(pool: Pool) -> None:
    """Nor large sums, those among them that it made and did not tell of."""
    backend, local = pool.spare(), program("fedmf")
    large(backend, 1000)
    run(backend, local)
    running, (worker,), names = pids(backend), backend.started, segments(backend)
    assert len(names) > 2
    made = [
        SharedMemory(f"{shelf}.{1 + int(told.segment.rpartition('.')[2])}", create=True, size=9)
        for shelf, told in worker.told.items()
        if told is not None
    ]  # as if it had died in between
    assert made
    os.kill(running[0], signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"worker \d of executor processes ended by signal 9 .*its round is lost"):
        run(backend, local)
    assert gone(running)
    assert unlinked(names + [memory.name for memory in made])
    for memory in made:
        memory.close()


SCRIPT = textwrap.dedent("""
    if __name__ == "__main__":  # a worker imports this file, too
        import torch
        from edgefr.engine.backends.processes import Workers
        from tests.engine.test_processes import EVERYONE, PLAIN, pids, segments, shards
        from tests.contract.programs import program, work

        backend, local = Workers(1), program("fedmf", local_epochs=200)
        private = local.init_private(0, torch.from_numpy(EVERYONE))
        for number in range(10**6):
            for _ in backend.releases(work(local), PLAIN, local.init_shared(0), private, shards(1)):
                if number == 0:
                    print(*pids(backend), *segments(backend), flush=True)
                    number = -1
""")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_parents_end_is_the_workers_end(number: int, tmp_path: Path) -> None:
    """Ctrl-C reaches the whole group, as at a terminal; the other signal reaches the parent alone."""
    (tmp_path / "script.py").write_text(SCRIPT)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        preexec_fn=hear_interrupts,
    )
    assert parent.stdout is not None
    try:
        worker, *names = parent.stdout.readline().split()
        if number == signal.SIGINT:
            os.killpg(parent.pid, number)
        else:
            parent.send_signal(number)
        _, said = parent.communicate(timeout=240)
    finally:
        parent.kill()
    assert gone([int(worker)])
    assert unlinked_soon(names)
    if number == signal.SIGINT:
        assert said.count("Traceback") == 1, said  # the parent's alone
        assert said.rstrip().endswith("KeyboardInterrupt")
        assert "leaked" not in said


def unlinked_soon(names: list[str]) -> bool:
    """Where the parent could not do it itself, the resource tracker takes a moment."""
    end = time.monotonic() + 10
    while time.monotonic() < end and any(Path("/dev/shm", name).exists() for name in names):
        time.sleep(0.02)
    return not any(Path("/dev/shm", name).exists() for name in names)


def test_what_a_user_can_get_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="workers must be at least 1, got 0"):
        Workers(0)
    monkeypatch.setattr(Workers, "start", lambda self: None)
    with pytest.raises(InputError, match=r"trains on the CPU, not on cuda; set engine.device=cpu"):
        run(Workers(1), program("fedmf"), device=torch.device("cuda"))
    if Path("/dev/shm").is_dir():
        monkeypatch.setattr(shared_memory.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 0}))
        with pytest.raises(InputError, match=r"0 MB are free: give /dev/shm more room .* or use executor inline"):
            run(Workers(1), program("fedmf"))


# --- the order of results ---------------------------------------------------------------------------------------------


class Slow:
    """A worker that hands back shards when it is asked to; `log` counts the shards in anybody's hands."""

    def __init__(self) -> None:
        self.busy, self.hands, self.pipe = 0, [], self

    def hand(self, block: int) -> None:
        self.hands.append(block)
        self.busy += 1

    def receive(self, number: int) -> tuple[int, tuple[str, Callable[[], None]]]:
        self.busy -= 1
        shard = self.hands.pop(0)
        return shard, (f"result {shard}", lambda: None)


@given(st.integers(0, 40), st.integers(1, 5), st.randoms(use_true_random=False))
@limits(max_examples=100, deadline=None)
def test_results_come_in_order_whoever_is_first_and_few_wait(shards: int, count: int, chance: random.Random) -> None:
    backend = Workers(count)
    workers = [Slow() for _ in range(count)]
    backend.started = workers  # type: ignore[assignment]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "wait", lambda pipes: [chance.choice([p for p in pipes if p.hands])])
        for wanted, result in enumerate(backend._in_order(1, shards)):
            assert result == f"result {wanted}"
            handed = max([s for w in workers for s in w.hands], default=wanted)
            assert handed < wanted + (processes.AHEAD + 1) * count
            assert all(len(w.hands) <= 2 for w in workers)
    assert wanted == shards - 1 if shards else True
    backend.started = []


# --- parcels ----------------------------------------------------------------------------------------------------------


def test_a_parcel_holds_what_was_packed_and_is_replaced_in_place() -> None:
    shelf, reader = Shelf(), SegmentReader()
    big = np.arange(4000, dtype=np.int32)
    table = torch.arange(6000.0).view(60, 100)
    things = {"big": big, "same": [big], "turned": table.T, "some": table[:, ::7], "empty": torch.empty(0, 3)}
    segment = shelf.put({**things, "small": np.arange(3), "none": None, "text": "é", "flags": torch.ones(9000) > 0})
    assert len(segment.stream) < 5000
    assert all(first % 64 == 0 for first, _ in segment.places)
    found = reader.get(segment)
    assert found["same"][0] is found["big"]
    assert found["small"].tolist() == [0, 1, 2]
    assert found["text"] == "é"
    assert bool(found["flags"].all())
    for name in ("turned", "some", "empty"):
        assert torch.equal(found[name], things[name])
    assert found["big"].tolist() == big.tolist()
    del found
    smaller = shelf.put({"big": big + 1})
    assert smaller.segment == segment.segment
    assert reader.get(smaller)["big"].tolist() == (big + 1).tolist()
    larger = shelf.put(np.zeros(10**6))
    assert larger.segment != segment.segment
    reader.keep([larger])
    assert not reader.open
    shelf.clear()
    assert unlinked([larger.segment, segment.segment])


def test_a_segment_that_is_still_read_is_closed_later() -> None:
    shelf, reader = Shelf(), SegmentReader()
    held = reader.get(shelf.put(np.arange(5000)))
    shelf.clear()
    reader.keep([])
    assert len(reader.open) == 1
    assert held.sum() == 5000 * 4999 // 2
    del held
    reader.keep([])
    assert not reader.open
