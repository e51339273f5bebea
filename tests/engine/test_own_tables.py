"""Clients' own tables are what their last round left them: against whole tables laid out, and in scores."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from edge.sampling import Sampler
from edgefr.engine.executors import debug
from edgefr.engine.federation import Federation
from edgefr.engine.scoring import ModelScorer
from edgefr.engine.tables import OwnTables, pulls_of
from edgefr.engine.work import RowUpdates, trained
from edgefr.experiment.experiment import load_experiment
from edgefr.simulation.bundle_checks import check_shippable
from export.program import LocalProgram
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.contract.programs import CLIENTS, ITEMS, VARIANTS, interactions, program, work
from tests.engine.test_scoring import literal
from tests.federations import federation as made_federation
from tests.mostly_slow import mostly_slow

USERS, ROWS = 6, 5
shards = st.lists(
    st.tuples(st.sets(st.integers(0, USERS - 1), min_size=1), st.integers(0, 2**31 - 1)), min_size=0, max_size=7
)


def everything(table: OwnTables, users: int, items: int) -> Tensor:
    return table.rows(np.repeat(np.arange(users), items), np.tile(np.arange(items), users)).view(users, items, -1)


@given(shards)
@settings(max_examples=80, deadline=None)
def test_own_tables_are_those_of_whole_tables_per_client(rounds: list[tuple[set[int], int]]) -> None:
    """Shard after shard, from a new broadcast each; whoever comes again has nothing left of its time before."""
    server = torch.zeros(ROWS, 2)
    own, whole = OwnTables(server, USERS), {}
    for clients, seed in rounds:
        rng = np.random.default_rng(seed)
        server = torch.from_numpy(rng.standard_normal((ROWS, 2)).astype(np.float32))
        shard = rng.permutation(np.array(sorted(clients)))
        slot, item = np.nonzero(rng.random((len(shard), ROWS)) < 0.4)
        order = rng.permutation(len(slot))
        changes = RowUpdates(
            torch.from_numpy(item[order]),
            torch.from_numpy(slot[order]),
            torch.from_numpy(rng.standard_normal((len(slot), 2)).astype(np.float32)),
        )
        own.leave(server, shard, changes)
        own.forget()
        for place, client in enumerate(shard.tolist()):
            whole[client] = server.clone()
            mine = changes.client == place
            whole[client][changes.rows[mine]] += changes.values[mine]
    own.table = server + 1
    expected = torch.stack([whole.get(client, server + 1) for client in range(USERS)])
    assert torch.equal(everything(own, USERS, ROWS), expected)
    again = OwnTables.of({name: value.numpy() for name, value in own.tensors().items()})
    assert torch.equal(everything(again, USERS, ROWS), expected)
    assert len(own.left) <= len({number for number in own.last.tolist() if number >= 0})


def federation(local: LocalProgram, **options: object) -> Federation:
    rule, clip = "graph" if local.name == "gpfedrec" else "mean", None if pulls_of(local) else 0.05
    return made_federation(local, CLIENTS, {"rule": rule}, {"clip": clip}, shard_size=5, keeps=True, **options)


def with_tables() -> list[str]:
    found = {variant: program(variant) for variant in VARIANTS if not variant.startswith("anchored")}
    return [name for name, local in found.items() if trained(local, local.phases, "shared", "rows")]


@pytest.mark.parametrize("variant", mostly_slow(with_tables()))
def test_what_a_client_keeps_is_its_table_after_its_last_round_whatever_was_clipped(variant: str) -> None:
    made = federation(program(variant))
    sampler, expected = cast(Sampler, work(made.program).sampler), {}
    rng = np.random.default_rng(0)
    for number in (1, 2, 3):
        cohort = rng.choice(CLIENTS, 9, replace=False)
        todo = replace(work(made.program), sampler=sampler, round=number, tables=made.tables)
        for client in cohort.tolist():
            own = {name: value[[client]] for name, value in made.private.items()}
            found = debug.run(todo, made.shared, own, np.array([client])).rows["item"]
            expected[client] = made.shared["item"].index_add(0, found.rows, found.values)
        made.round(number, cohort, sampler, sampler.train)
    assert 9 < len(expected) < CLIENTS
    found = everything(made.own["item"], CLIENTS, ITEMS)
    for client in range(CLIENTS):
        assert_same(found[client], expected.get(client, made.shared["item"]), size=3.0)
    assert not torch.equal(found, made.shared["item"].expand_as(found))


@pytest.mark.parametrize("variant", with_tables())
def test_users_are_scored_on_their_own_tables(variant: str) -> None:
    made = federation(program(variant))
    sampler, context = cast(Sampler, work(made.program).sampler), interactions()
    made.round(1, np.arange(0, CLIENTS, 2), sampler, sampler.train)
    tables = {**made.tables, **made.own}
    pool, users = np.arange(0, ITEMS, 2), np.array([8, 1, CLIENTS // 2, 22])
    device = torch.device("cpu")
    model = made.program, made.shared, made.private, context
    items = np.random.default_rng(2).integers(0, ITEMS, (len(users), 9)).astype(np.int32)
    for values_per_block in (1 << 24, 1):
        score = ModelScorer(*model, pool, ITEMS, device, values_per_block, tables)
        some, every = score(users, items), score(users, None)
        for row, user in enumerate(users.tolist()):
            assert_same(some[row], literal(*model, user, items[row].astype(np.int64), tables))
            assert_same(every[row], literal(*model, user, pool, tables))
    server = ModelScorer(*model, pool, ITEMS, device, tables=made.tables)(users, None)
    if getattr(made.program.settings, "recommends", "global") == "global":  # else from the table made for a client
        assert np.abs(every - server).max() > 1e-3


def test_who_has_no_table_of_items_is_told() -> None:
    with pytest.raises(InputError, match=r"evaluation\.tables: clients of transfr train no table of items: drop it"):
        federation(program("transfr vector"))


@pytest.mark.parametrize("field", ["tables=own", "keep=best"])
def test_own_tables_and_the_best_round_are_read_over_leave_one_out(field: str) -> None:
    load_experiment(overrides=["method=fedmf", f"evaluation.{field}"])
    with pytest.raises(InputError, match=f"evaluation.{field[:4]}.* protocol leave-one-out or cross-domain"):
        load_experiment(overrides=["method=fedmf", "protocol.name=blocks", f"evaluation.{field}"])


def test_no_bundle_holds_own_tables_and_no_device_knows_held_out_items() -> None:
    with pytest.raises(InputError, match=r"set evaluation\.tables=server"):
        check_shippable(load_experiment(overrides=["method=fedmf", "evaluation.tables=own"]))
    known = ["method=fedmf", "protocol.negatives_avoid_held_out=true"]
    with pytest.raises(InputError, match="no device knows which items are held out"):
        check_shippable(load_experiment(overrides=[*known, "export.learning=true"]))
    check_shippable(load_experiment(overrides=known))
