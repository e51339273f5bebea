"""What clients keep lies with stores on a cluster, twice: nothing is lost with one of them, whenever it dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from edgefr.engine.held import Held
from edgefr.engine.stores import Store, StoredRows, Stores, opened, pack, places, ranges, together
from privacy.errors import InputError
from tests.clusters import at_work, lent, two_nodes
from tests.contract.programs import program

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

pytestmark = pytest.mark.slow  # starting a cluster takes long


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with two_nodes() as made:
        ray.init(made.address, log_to_driver=False)
        yield made


@pytest.fixture
def cluster(nodes: Any) -> Iterator[Any]:
    with lent(nodes):
        yield nodes


@pytest.fixture
def stores(cluster: Any) -> Iterator[Stores]:
    made = Stores(ray)
    yield made
    made.close()


VALUE = torch.arange(33.0).view(11, 3)


def kill(stores: Stores, number: int) -> None:
    """End a store, and wait until it is gone."""
    ray.kill(stores.actors[number])
    with suppress(ray.exceptions.RayActorError):
        while True:
            ray.get(stores.actors[number].ready.remote())


def stored(held: Held) -> StoredRows:
    assert isinstance(held.source, StoredRows)
    return held.source


def changes(stores: Stores, held: Held, rows: torch.Tensor) -> list[Any]:
    """A task of all clients, whose rows become these."""
    clients = np.arange(len(rows))
    bounds = ranges(len(rows), len(stores.actors))
    return [
        ray.put(pack((clients[where] - bounds[part], {stored(held).name: rows[torch.from_numpy(where)]})))
        for part, where in enumerate(places(clients, bounds))
    ]


def test_stores_make_what_clients_begin_with_each_its_own(stores: Stores) -> None:
    for variant in ("fedmf", "transfr vector", "pfedrec"):
        local = program(variant)
        expected = local.init_private(3, torch.arange(11))
        found = stores.first(local, 3, 11)
        assert found.keys() == expected.keys()
        for name, held in found.items():
            assert held.shape == expected[name].shape
            assert held.whole().numpy().tobytes() == expected[name].numpy().tobytes()


def test_rows_are_read_written_and_copied_wherever_they_lie(stores: Stores) -> None:
    held, some = stores.keep(VALUE), torch.tensor([9, 0, 4])
    assert torch.equal(held[some], VALUE[some])
    copy = held.clone()
    copy[some] = torch.zeros(3, 3)
    assert torch.equal(copy.whole(), VALUE.index_copy(0, some, torch.zeros(3, 3)))
    assert torch.equal(held.whole(), VALUE)


def machines(stores: Stores) -> list[str]:
    found: list[str] = ray.get([actor.ready.remote() for actor in stores.actors])
    return found


def test_each_store_is_on_a_machine_of_its_own_and_this_is_known(stores: Stores) -> None:
    assert len(set(machines(stores))) == 2
    assert machines(stores) == stores._nodes


def test_a_store_that_cannot_put_back_a_round_ends_it(stores: Stores) -> None:
    held = stores.keep(VALUE)
    with pytest.raises(RuntimeError, match="could not put back a round"):
        stores.take_back([changes(stores, held, VALUE.double())])


class Deaf:
    """A store that is there, and is not reached when a round is whole."""

    LOST = object()

    def __init__(self, actor: Any):
        self.actor = actor

    def __getattr__(self, name: str) -> Any:
        if name == "commit":
            return SimpleNamespace(remote=lambda number: self.LOST)
        return getattr(self.actor, name)


def test_who_was_not_reached_and_does_not_die_either_is_asked_nothing_any_more(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is to be killed may answer for a while, with what was before the round."""

    def get(asked: Any, **how: Any) -> Any:
        if asked is Deaf.LOST:
            raise ray.exceptions.RayError("the connection broke")
        return ray.get(asked, **how)

    held = stores.keep(VALUE)
    change = changes(stores, held, VALUE + 100)
    stores.actors[0] = Deaf(stores.actors[0])
    slow = SimpleNamespace(exceptions=ray.exceptions, kill=lambda actor: None, get=get)
    monkeypatch.setattr(stores, "ray", slow)
    monkeypatch.setattr("edgefr.engine.backends.ray_cluster.machines", lambda _: sorted(set(stores._nodes)))
    stores.take_back([change])
    assert torch.equal(held.whole(), VALUE + 100)
    monkeypatch.undo()


def test_what_nobody_has_any_more_is_dropped(stores: Stores) -> None:
    held, other = stores.keep(VALUE), stores.keep(VALUE)
    name, kept = stored(held).name, stored(other).name
    del held
    other[torch.tensor([0])] = torch.zeros(1, 3)  # the next thing that is asked
    for actor, part in ((actor, part) for part in range(2) for actor in stores.actors):
        names = opened(ray.get(actor.give.remote(part)))[0].keys()
        assert kept in names
        assert name not in names


def test_what_has_ended_is_not_asked(cluster: Any) -> None:
    made = Stores(ray)
    held = made.keep(VALUE)
    made.close()
    with pytest.raises(RuntimeError, match="ended with the backend"):
        held.whole()


@pytest.mark.parametrize("gone", [0, 1])
def test_one_that_dies_is_replaced_from_the_other_whatever_is_asked_next(stores: Stores, gone: int) -> None:
    held = stores.keep(VALUE)
    kill(stores, gone)
    assert torch.equal(held.whole(), VALUE)
    kill(stores, 1 - gone)  # so the new one has all of it
    held[torch.tensor([1, 10])] = -torch.ones(2, 3)
    kill(stores, gone)
    expected = VALUE.index_fill(0, torch.tensor([1, 10]), -1)
    assert torch.equal(held.clone().whole(), expected)
    kill(stores, 1 - gone)
    assert stores.keep(VALUE).shape == VALUE.shape
    assert torch.equal(held.whole(), expected)


def test_a_round_changes_nothing_before_all_stores_have_all_of_it(stores: Stores) -> None:
    """One dies when it has put its part aside; who takes its place is told of the round by who holds the same."""
    held, new = stores.keep(VALUE), VALUE + 100
    change = changes(stores, held, new)
    for part in range(2):
        for actor in stores._holders(part):
            ray.get(actor.stash.remote(part, 77, change[part]))
    assert torch.equal(held.whole(), VALUE)
    kill(stores, 1)
    assert torch.equal(held.whole(), VALUE)  # and mended
    for actor in stores.actors:
        actor.commit.remote(76)  # another round's
    assert torch.equal(held.whole(), VALUE)
    for actor in stores.actors:
        actor.commit.remote(77)
    assert torch.equal(held.whole(), new)


def test_one_that_dies_as_a_round_is_committed_leaves_it_with_the_other(stores: Stores) -> None:
    held, new = stores.keep(VALUE), VALUE + 100
    stores.take_back([changes(stores, held, new)])
    kill(stores, 0)
    assert torch.equal(held.whole(), new)
    kill(stores, 1)
    assert torch.equal(held.whole(), new)


def test_a_round_that_cannot_be_put_back_says_so_and_changes_nothing(stores: Stores) -> None:
    held = stores.keep(VALUE)
    change = changes(stores, held, VALUE + 100)
    kill(stores, 0)
    time.sleep(0.5)
    with pytest.raises(ray.exceptions.RayError):
        stores.take_back([change])
    stores.mend()
    assert torch.equal(held.whole(), VALUE)
    stores.take_back([change])
    assert torch.equal(held.whole(), VALUE + 100)


def test_where_all_who_held_something_died_together_the_run_is_told_to_go_on_from_its_checkpoint(
    stores: Stores,
) -> None:
    held = stores.keep(VALUE)
    kill(stores, 0)
    kill(stores, 1)
    with pytest.raises(InputError, match="died together; go on from the last checkpoint, with --resume"):
        held.whole()


def test_processes_that_are_killed_are_replaced_and_the_machines_are_different_ones(stores: Stores) -> None:
    held = stores.keep(VALUE)
    assert len(set(stores._nodes)) == 2
    pids = at_work("Store")
    assert len(pids) == 2
    os.kill(pids[0], signal.SIGKILL)
    assert torch.equal(held.whole(), VALUE)
    assert len(set(machines(stores))) == 2
    assert len(at_work("Store")) == 2


def test_a_machine_that_dies_takes_nothing_with_it(cluster: Any) -> None:
    late = cluster.add_node(num_cpus=1)
    stores = Stores(ray)
    assert len(set(machines(stores))) == 3
    held = stores.keep(VALUE)
    held[torch.tensor([2])] = torch.zeros(1, 3)
    cluster.remove_node(late, allow_graceful=False)
    assert torch.equal(held.whole(), VALUE.index_fill(0, torch.tensor([2]), 0))
    held[torch.tensor([2, 9])] = torch.ones(2, 3)
    assert torch.equal(held.whole(), VALUE.index_fill(0, torch.tensor([2, 9]), 1))
    stores.close()


def test_a_store_does_not_count_on_being_told_once() -> None:
    for times in (1, 2):
        store, index = Store(), np.array([1])
        for _ in range(times):
            store.put(0, "a", pack(VALUE[:5]))
            store.copy("a", "b")
        for _ in range(times):
            store.write(0, pack((index, {"a": torch.zeros(1, 3)})))
            store.stash(0, 5, pack((index, {"b": torch.ones(1, 3), "gone": torch.ones(1, 3)})))
        store.commit(5)
        store.drop(["nobody's"])
        assert store.next == {}
        found = opened(store.read(0, {"x": "a", "y": "b"}, [np.array([1, 0])]))
        assert found["x"].tolist() == [[0, 0, 0], [0, 1, 2]]
        assert found["y"].tolist() == [[1, 1, 1], [0, 1, 2]]


def test_rows_of_several_ranges_come_together_in_the_order_that_was_asked() -> None:
    clients, bounds = np.array([7, 2, 9, 0]), ranges(10, 3)
    rows = torch.arange(10.0).view(10, 1)
    parts = [{"x": rows[torch.from_numpy(clients[where])]} for where in places(clients, bounds)]
    assert together(parts, clients, bounds)["x"].flatten().tolist() == [7, 2, 9, 0]
