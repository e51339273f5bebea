"""FedNCF and PFedRec against plain torch modules: scores, losses, one round of training, and what each phase trains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from edgefr.engine.executors import debug, inline
from edgefr.experiment.method import METHODS
from edgefr.methods.fedncf.program import FedNCF, WithNetwork
from edgefr.methods.fedncf.settings import FedNCFSettings
from edgefr.methods.pfedrec.program import PFedRec
from edgefr.methods.pfedrec.settings import PFedRecSettings
from export.batches import Flat, One
from export.given import Given
from export.program import LocalProgram, TensorSpec
from tests.closeness import assert_same
from tests.contract.programs import ITEMS, work

DIM = 6
bce = nn.functional.binary_cross_entropy_with_logits


def fedncf(**values: object) -> FedNCF:
    return FedNCF(FedNCFSettings.model_validate({"dim": DIM, "lr": 0.2} | values), ITEMS, 1)


def pfedrec(**values: object) -> PFedRec:
    return PFedRec(PFedRecSettings.model_validate({"dim": DIM, "lr": 0.2} | values), ITEMS, 1)


def start(program: LocalProgram, clients: int = 4) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """First tensors, the private ones moved apart (all clients start from one scorer)."""
    private = program.init_private(3, torch.arange(clients))
    moved = np.random.default_rng(1)
    spread = {n: v + torch.from_numpy(moved.standard_normal(v.shape).astype(np.float32)) for n, v in private.items()}
    return program.init_shared(3), spread


class Plain(nn.Module):
    """One client of the literature: an embedding of items, one of the user (FedNCF alone) and a linear layer."""

    def __init__(self, item: Tensor, own: dict[str, Tensor]):
        super().__init__()
        weight = own["scorer.weight"]
        self.item = nn.Embedding.from_pretrained(item.clone(), freeze=False)
        self.user = nn.Parameter(own["user"].clone()) if "user" in own else None
        self.scorer = nn.Linear(len(weight), 1)
        with torch.no_grad():
            self.scorer.weight.copy_(weight.unsqueeze(0))
            self.scorer.bias.copy_(own["scorer.bias"])

    def forward(self, items: Tensor) -> Tensor:
        x = self.item(items)
        if self.user is not None:
            x = torch.cat([self.user.expand(len(items), -1), x], dim=1)
        return self.scorer(x).squeeze(1)


def scores(program: LocalProgram, tensors: dict[str, Tensor], batch: One) -> Tensor:
    vectors = program.vectors(tensors, batch)
    return program.score(tensors, batch, vectors, program.user(tensors, batch, None, vectors))


@pytest.mark.parametrize("program", [fedncf(), pfedrec()], ids=lambda p: p.name)
def test_scores_and_loss_are_those_of_plain_modules(program: LocalProgram) -> None:
    shared, private = start(program)
    own = {name: value[2] for name, value in private.items()}
    items, label = torch.tensor([5, 0, 33, 7]), torch.tensor([1.0, 0, 0, 1])
    plain = Plain(shared["item"], own)
    batch = One(items, items, label, torch.full((4,), 0.25))
    assert_same(scores(program, {**shared, **own}, batch), plain(items))
    for phase in program.phases:
        found = program.loss({**shared, **own}, batch, phase)
        assert_same(found, bce(plain(items), label))


@pytest.mark.parametrize("program", [fedncf(), pfedrec()], ids=lambda p: p.name)
def test_a_list_of_clients_is_each_client_alone(program: LocalProgram) -> None:
    shared, private = start(program, clients=3)
    counts, items = [2, 1, 3], torch.tensor([5, 0, 5, 7, 0, 9])
    client = torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
    label, weight = torch.tensor([1.0, 0, 1, 0, 0, 1]), 1 / torch.tensor(counts)[client]
    batch = Flat(items, items, label, weight, client=client, ends=torch.tensor([2, 3, 6]))
    tensors = {"item": shared["item"][items], **private}
    alone = [Plain(shared["item"], {n: v[c] for n, v in private.items()})(items[client == c]) for c in range(3)]
    assert_same(scores(program, tensors, batch), torch.cat(alone))
    expected = sum(bce(logit, label[client == c]) for c, logit in enumerate(alone))
    assert_same(program.loss(tensors, batch, program.phases[0]), expected)


@pytest.mark.parametrize("executor", [debug.run, inline.run])
@pytest.mark.parametrize("program", [fedncf(item_lr=8.0), pfedrec(item_lr=8.0)], ids=lambda p: p.name)
def test_a_round_is_a_step_of_torch_optim_or_the_scorers_and_then_the_items(program: LocalProgram, executor) -> None:
    shared, private = start(program, clients=1)
    todo, who = work(program, batch_size=1000), np.array([0])
    found = executor(todo, shared, private, who)
    plain = Plain(shared["item"], {n: v[0] for n, v in private.items()})
    scorer = {"params": plain.scorer.parameters(), "lr": 0.2}
    items = {"params": plain.item.parameters(), "lr": 8.0}
    steps = [[scorer], [items]]  # on the same draws
    if plain.user is not None:
        steps = [[scorer, {"params": [plain.user], "lr": 0.2 * 170}, items]]
    for groups in steps:
        examples = todo.sampler.epoch(who, program.phases[0].purpose, todo.round, 0)
        optimiser = torch.optim.SGD(groups)
        plain.zero_grad()
        bce(plain(torch.from_numpy(examples.items).long()), torch.from_numpy(examples.label)).backward()
        optimiser.step()
    same(found, plain, shared)


def same(found, plain: Plain, shared: dict[str, Tensor]) -> None:
    """The updates of one client against the module that trained as it did; something must have moved."""
    table = torch.zeros_like(shared["item"])
    table[found.rows["item"].rows] = found.rows["item"].values
    change = (plain.item.weight - shared["item"]).detach()
    assert change.abs().max() > 0.01
    assert_same(table, change, size=1.0)
    own = {"scorer.weight": plain.scorer.weight[0], "scorer.bias": plain.scorer.bias}
    own |= {"user": plain.user} if plain.user is not None else {}
    assert found.private.keys() == own.keys()
    for name, value in own.items():
        assert_same(found.private[name][0], value, name=name)


def test_each_phase_trains_what_it_says_and_nothing_else() -> None:
    program = pfedrec(item_lr=8.0)
    shared, private = start(program)
    assert [phase.purpose for phase in program.phases] == ["examples", "examples"]
    for phase, trains in zip(program.phases, ({"scorer.weight", "scorer.bias"}, {"item"}), strict=True):
        found = inline.run(replace(work(program), phases=[phase]), shared, private, np.arange(4))
        assert {*found.private, *found.rows, *found.dense} == set(phase.trains) == trains
        assert set(phase.lr) == trains
        assert all((value - private[name]).abs().max() > 1e-3 for name, value in found.private.items())
        assert all(rows.values.abs().max() > 1e-3 for rows in found.rows.values())
    (phase,) = fedncf().phases
    assert set(phase.trains) == set(phase.lr) == {"item", "user", "scorer.weight", "scorer.bias"}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.floats(-50, 50))
def test_the_ranking_of_fedncf_does_not_depend_on_the_user_vector(seed: int, shift: float) -> None:
    program = fedncf()
    shared, private = start(program)
    own = {name: value[1] for name, value in private.items()}
    other = own | {"user": own["user"] + shift * torch.from_numpy(np.random.default_rng(seed).random(DIM)).float()}
    every = torch.arange(ITEMS)
    batch = One(every, every, every, every)
    first, second = (scores(program, {**shared, **tensors}, batch) for tensors in (own, other))
    apart = second - first
    torch.testing.assert_close(apart, apart[:1].expand(ITEMS), atol=1e-3, rtol=1e-4)
    constant = float((own["scorer.weight"][:DIM] * (other["user"] - own["user"])).sum())
    assert float(apart[0]) == pytest.approx(constant, abs=1e-3)


def test_learning_rates_follow_the_catalogue_unless_told() -> None:
    assert fedncf().phases[0].lr == pytest.approx(
        {"item": 0.2 * ITEMS * 170, "user": 0.2 * 170, "scorer.weight": 0.2, "scorer.bias": 0.2}
    )
    assert fedncf(item_lr=3.0, user_lr=4.0).phases[0].lr["item"] == 3.0
    assert fedncf(item_lr=3.0, user_lr=4.0).phases[0].lr["user"] == 4.0
    assert pfedrec().phases[1].lr == pytest.approx({"item": 0.2 * ITEMS * 170})
    assert pfedrec(item_lr=3.0).phases[1].lr == {"item": 3.0}


@pytest.mark.parametrize(("program", "width"), [(fedncf(), 2 * DIM), (pfedrec(), DIM)], ids=["fedncf", "pfedrec"])
def test_clients_start_from_one_scorer_in_the_bounds_of_torch(program: LocalProgram, width: int) -> None:
    assert program.specs["scorer.weight"] == TensorSpec((width,), "private")
    private = program.init_private(7, torch.tensor([4, 9, 2]))
    for name in ("scorer.weight", "scorer.bias"):
        assert private[name].shape == (3, *program.specs[name].shape)
        assert torch.equal(private[name], private[name][:1].expand_as(private[name]))
        assert private[name].abs().max() <= width**-0.5
        assert not torch.equal(private[name], program.init_private(8, torch.tensor([4, 9, 2]))[name])
    assert private["scorer.weight"].unique().numel() == width
    private["scorer.weight"][0] = 0  # a client's tensors are its own
    assert private["scorer.weight"][1].abs().max() > 0
    assert float(program.init_shared(7)["item"].std()) == pytest.approx(1.0, abs=0.2)


def test_only_the_item_table_leaves_a_device() -> None:
    for name in ("fedmf", "fedncf", "pfedrec"):
        row = METHODS[name]
        program = row.program(row.settings(), Given(ITEMS, 1))
        assert [n for n, spec in program.specs.items() if spec.place == "shared"] == ["item"]
        assert (program.pointwise, row.needs_text) == (True, False)


def test_a_network_that_all_share_is_that_of_plain_modules() -> None:
    program = WithNetwork(FedNCFSettings(dim=DIM, scorer="mlp", hidden=[5, 4]), ITEMS, 1)
    shared, private = start(program)
    shared = {name: value + 0.1 for name, value in shared.items()}  # biases begin at 0
    own = {name: value[2] for name, value in private.items()}
    assert set(own) == {"user"}
    layers = [nn.Linear(2 * DIM, 5), nn.Linear(5, 4), nn.Linear(4, 1)]
    for number, layer in enumerate(layers):
        layer.weight.data = shared[f"network.{number}.weight"].T.clone()
        layer.bias.data = shared[f"network.{number}.bias"].clone()
    plain = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    items, label = torch.tensor([5, 0, 33, 7]), torch.tensor([1.0, 0, 0, 1])
    wanted = plain(torch.cat([own["user"].expand(4, -1), shared["item"][items]], dim=1)).squeeze(1)
    batch = One(items, items, label, torch.full((4,), 0.25))
    assert_same(scores(program, {**shared, **own}, batch), wanted)
    assert_same(program.loss({**shared, **own}, batch, program.phases[0]), bce(wanted, label))
