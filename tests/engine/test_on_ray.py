"""Ray: the same bits as in one process on one node and on two, whoever dies meanwhile."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from edgefr.engine.backends.ray import OnRay
from edgefr.engine.federation import Federation
from privacy.errors import InputError
from tests.clusters import at_work, lent, two_nodes
from tests.engine.test_processes import CASES, Faulty, rounds, run

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

pytestmark = pytest.mark.slow  # starting a cluster takes long


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with two_nodes() as made:
        yield made


@pytest.fixture
def cluster(nodes: Any) -> Iterator[Any]:
    with lent(nodes):
        yield nodes


@pytest.fixture
def backend(cluster: Any) -> Iterator[OnRay]:
    made = OnRay(cluster.address)
    yield made
    made.close()


Done = tuple[Federation, dict[str, torch.Tensor]]


def assert_same(one: Done, other: Done) -> None:
    for first, second in ((one[0].shared, other[0].shared), (one[0].private, other[0].private), (one[1], other[1])):
        assert first.keys() == second.keys()
        for name in first:
            assert first[name].numpy().tobytes() == second[name].numpy().tobytes(), name


def test_two_nodes_give_the_bits_of_one_process(backend: OnRay) -> None:
    for case in CASES:
        assert_same(rounds(case, None), rounds(case, backend))
    assert len({node["NodeID"] for node in ray.nodes() if node["Alive"]}) == 2


OWN = """
import ray
from edgefr.engine.backends.ray import OnRay
from tests.engine.test_on_ray import assert_same, rounds

if __name__ == "__main__":
    own = OnRay("local", workers=1)
    assert_same(rounds("fedmf", None), rounds("fedmf", own))
    assert ray.cluster_resources()["CPU"] == 1
    own.close()
    assert not ray.is_initialized()
"""


def test_a_ray_of_its_own_starts_and_ends_with_the_backend(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text(OWN)
    subprocess.run([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": ":".join(sys.path)}, check=True)


@pytest.mark.parametrize("kills", [2, 10])
def test_workers_that_are_killed_change_no_bit(backend: OnRay, kills: int) -> None:
    """Each in the middle of a block."""
    expected = rounds("replay", None)
    backend.start()
    killed: list[int] = []
    chance = random.Random(7)

    def kill() -> None:
        while len(killed) < kills:
            for pid in at_work("run_blocks")[:1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(chance.uniform(1.0, 4.0))  # a worker takes a second to be there again

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    while len(killed) < kills:
        assert_same(expected, rounds("replay", backend))
    killer.join()


def test_a_node_that_dies_in_a_round_changes_no_bit_and_another_may_join(cluster: Any, backend: OnRay) -> None:
    expected = rounds("replay", None)
    backend.start()
    late = cluster.add_node(num_cpus=2)
    gone = threading.Timer(0.3, lambda: cluster.remove_node(late, allow_graceful=False))
    gone.start()
    assert_same(expected, rounds("replay", backend))
    gone.join()
    assert_same(expected, rounds("replay", backend))


def test_a_fault_comes_back_with_its_reason_and_wrong_input_as_such(backend: OnRay) -> None:
    with pytest.raises(
        RuntimeError, match=r"(?s)block 0 of round 2 failed on Ray.*ZeroDivisionError: nothing to share"
    ):
        run(backend, Faulty(ZeroDivisionError("nothing to share")))
    with pytest.raises(InputError, match="too little of it"):
        run(backend, Faulty(InputError("too little of it")))
    assert_same(rounds("fedmf", None), rounds("fedmf", backend))


def test_a_cluster_that_does_not_answer_is_named() -> None:
    ray.shutdown()
    with pytest.raises(InputError, match=r"^no Ray answers at 127\.0\.0\.1:9: "):
        OnRay("127.0.0.1:9").start()


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'edgefr\[ray\]'"):
        OnRay().start()


def test_a_ray_that_does_not_start_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **__: object) -> None:
        raise Exception("The current node timed out during startup.\n" + "log\n" * 60)

    ray.shutdown()
    monkeypatch.setattr(ray, "init", slow)
    with pytest.raises(InputError, match=r"^Ray does not start here: The current node timed out") as told:
        OnRay().start()
    assert "\n" not in str(told.value)
