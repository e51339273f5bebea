"""DP-SGD on the device: records, gradients, clip, noise, and what the trainer refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.executors import inline
from edgefr.engine.executors.dp_sgd import (
    DPSGD,
    PrivateSteps,
    batch_of,
    check_program,
    records_of,
    start_up_probe,
    uses_per_round,
)
from edgefr.engine.optimisers import Optimiser
from edgefr.engine.work import Updates
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from export.batches import One
from export.program import LocalProgram, Phase, Tensors
from privacy.errors import InputError
from privacy.noise_key import NoiseKey
from tests.closeness import after_training, assert_all_same, assert_same
from tests.contract.programs import CLIENTS, ITEMS, VARIANTS, program, work
from tests.noises import KEY

CPU = torch.device("cpu")
PLAIN = [
    *("fedmf", "fedncf", "pfedrec", "pfedrec of probabilities", "anchored fedmf", "anchored pfedrec"),
    *("anchored transfr", "transfr vector", "transfr sgd plain", "fedmf by bce-scaled", "pfedrec by bce-scaled"),
    *("transfr vector, neural", "fedncf with a network"),
]
FREE = 1e6
"""A clip that no gradient reaches."""


def start(local: LocalProgram, clients: np.ndarray) -> tuple[Tensors, Tensors]:
    return local.init_shared(3), local.init_private(3, torch.from_numpy(clients))


def trained(executor, local: LocalProgram, clients: np.ndarray, **options) -> Updates:
    return executor(work(local, **options), *start(local, clients), clients)


def of(updates: Updates, slot: int) -> dict[str, torch.Tensor]:
    """What one client changed, by name; tables whole."""
    out = {name: value[slot] for name, value in (updates.dense | updates.private).items()}
    for name, rows in updates.rows.items():
        mine = rows.client == slot
        out[name] = torch.zeros(ITEMS, rows.values.shape[1]).index_copy(0, rows.rows[mine], rows.values[mine])
    return out


# --- records ----------------------------------------------------------------------------------------------------------


def sampler(train: list[list[int]], negatives: int = 3, pool: list[int] | None = None) -> Sampler:
    return Sampler(Ragged.from_lists(train), np.array(range(10) if pool is None else pool), 10, negatives, 8, seed=7)


@settings(max_examples=50, deadline=None)
@given(
    own=st.sets(st.integers(0, 9), min_size=1, max_size=9),
    negatives=st.integers(0, 6),
    number=st.integers(0, 50),
)
def test_every_interaction_is_in_one_record_whose_negatives_are_not_itself(
    own: set[int], negatives: int, number: int
) -> None:
    records = records_of(sampler([[], sorted(own)], negatives), 1, "draws", number, 0)
    assert records.shape == (len(own), 1 + negatives)
    assert sorted(records[:, 0]) == sorted(own)
    assert (records[:, 1:] != records[:, :1]).all()
    assert np.isin(records, np.arange(10)).all()


def test_negatives_are_uniform_over_the_pool_without_the_records_own_item() -> None:
    """Own items of other records are drawn as well: else a record would depend on all of the client's interactions."""
    pool = [0, 2, 3, 5, 6, 9]
    for item in (0, 5, 9):
        draws = [records_of(sampler([[item, 3]], 20, pool), 0, "draws", n) for n in range(200)]
        mine = np.concatenate([found[found[:, 0] == item, 1:].ravel() for found in draws])
        values, counts = np.unique(mine, return_counts=True)
        assert values.tolist() == [i for i in pool if i != item]
        assert abs(counts - 800).max() < 5 * math.sqrt(800)


def test_a_record_does_not_depend_on_the_clients_other_items() -> None:
    """With one item replaced by another, in the same place of the list, all other records stay as they are."""
    before, after = (records_of(sampler([items]), 0, "draws", 4) for items in ([1, 4, 7], [1, 5, 7]))
    same = (before == after).all(axis=1)
    assert same.sum() == 2
    assert before[~same, 0].tolist() == [4]


def test_records_are_drawn_anew_every_epoch_and_the_same_again() -> None:
    draws = [records_of(sampler([list(range(9))]), 0, "draws", 1, epoch).tolist() for epoch in (0, 1, 0)]
    assert draws[0] == draws[2] != draws[1]


# --- steps ------------------------------------------------------------------------------------------------------------


class Factors(torch.nn.Module):
    """FedMF's loss of one record, out of layers that opacus hooks."""

    def __init__(self, item: torch.Tensor, user: torch.Tensor) -> None:
        super().__init__()
        self.item = torch.nn.Embedding.from_pretrained(item.clone(), freeze=False)
        self.user = torch.nn.Linear(len(user), 1, bias=False)
        self.user.weight.data.copy_(user[None])

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        return self.user(self.item(records)).squeeze(-1)


def test_gradients_of_single_records_are_those_of_opacus() -> None:
    from opacus.grad_sample import GradSampleModule

    local = FedMF(FedMFSettings(dim=4), ITEMS, local_epochs=1)
    records = torch.tensor([[7, 1, 2, 3], [1, 9, 7, 20], [30, 31, 1, 33]])
    shared, private = start(local, np.array([2]))
    tensors = shared | {name: value[0] for name, value in private.items()}
    module = GradSampleModule(Factors(tensors["item"], tensors["user"]), loss_reduction="sum")
    label = torch.zeros(records.shape)
    label[:, 0] = 1.0
    loss = torch.nn.functional.binary_cross_entropy_with_logits(module(records), label, reduction="none")
    loss.mean(dim=1).sum().backward()
    theirs = {name.split(".")[1]: value.grad_sample for name, value in module.named_parameters()}
    for phase in local.phases:
        ours = PrivateSteps(local, phase, FREE, 0.0, 1, CPU).each(tensors, records)
        for name, found in ours.items():
            expected = theirs[name].squeeze(1) if name == "user" else theirs[name][:, records.unique()]
            torch.testing.assert_close(found, expected, msg=name)


@pytest.mark.parametrize("variant", PLAIN)
def test_without_noise_and_clip_it_is_plain_training_on_the_records(variant: str) -> None:
    """The loop below shares the records and the optimiser with the trainer, and not how gradients are taken.

    A step of n records of 4 planned ones is n / 4 of a step along their mean.
    """
    local, clients = program(variant, local_epochs=2), np.array([2, 5])
    given, (shared, private) = work(local), start(local, clients)
    found = DPSGD(FREE, 0.0)(given, shared, private, clients)
    for slot, client in enumerate(clients.tolist()):
        tensors = {**shared, **{n: v[slot] for n, v in private.items()}}
        before = dict(tensors)
        for phase in given.phases:
            tensors |= {name: tensors[name].clone() for name in phase.trains}
            optimiser = Optimiser(phase.optimiser, phase.lr, {n: tensors[n].shape for n in phase.trains})
            done = 0
            for epoch in range(phase.epochs):
                records = torch.from_numpy(records_of(given.sampler, client, phase.purpose, given.round, epoch))
                for batch in records.split(16 // 4):
                    leaves = {name: tensors[name].clone().requires_grad_() for name in phase.trains}
                    loss = local.loss({n: leaves.get(n, tensors[n]) for n in phase.uses}, batch_of(batch), phase)
                    loss = loss * len(batch) / 4
                    done += 1
                    for name, gradient in zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True):
                        optimiser.step(name, tensors[name], gradient, np.array(done))
        changed = of(found, slot)
        moved = 0.0
        for name, value in changed.items():
            expected = tensors[name] - before[name] if local.specs[name].place == "shared" else tensors[name]
            assert_same(value, expected, **after_training(given.phases, done, before), name=name)
            moved = max(moved, float((tensors[name] - before[name]).abs().max()))
        assert moved > 1e-3, "nothing was learned, so nothing was compared"


PLANNED = 10


def steps(local: LocalProgram, clip: float, sigma: float = 0.0) -> tuple[PrivateSteps, dict[str, torch.Tensor]]:
    shared, private = start(local, np.array([0]))
    return PrivateSteps(local, local.phases[0], clip, sigma, PLANNED, CPU), {
        **shared,
        **{n: v[0] for n, v in private.items()},
    }


RECORDS = torch.tensor([[1, 2, 3, 4], [5, 1, 7, 7], [9, 11, 13, 2], [40, 41, 1, 3], [1, 8, 8, 8]])


def length(gradients: dict[str, torch.Tensor]) -> float:
    return math.sqrt(sum(float(value.detach().double().square().sum()) for value in gradients.values()))


@pytest.mark.parametrize("variant", ["fedmf", "transfr vector"])
@pytest.mark.parametrize("clip", [1e-4, 0.3, 5.0])
def test_one_record_moves_a_steps_sum_by_the_clip_at_most(variant: str, clip: float) -> None:
    local = program(variant)
    private, tensors = steps(local, clip)
    whole = {name: value * PLANNED for name, value in private.step(tensors, RECORDS).items()}
    for i in range(len(RECORDS)):
        rest = torch.cat([RECORDS[:i], RECORDS[i + 1 :]])
        without = {name: value * PLANNED for name, value in private.step(tensors, rest).items()}
        assert length({name: whole[name] - without[name] for name in whole}) <= clip * (1 + 1e-5)


def test_a_steep_record_is_cut_jointly_over_all_tensors() -> None:
    local = program("fedmf")
    private, tensors = steps(local, 0.01)
    plain, _ = steps(local, FREE)
    cut, full = (s.step(tensors, RECORDS[:1]) for s in (private, plain))
    assert length(full) * PLANNED > 0.01
    assert length(cut) * PLANNED == pytest.approx(0.01, rel=1e-4)
    for name in full:
        assert_same(cut[name] / length(cut), full[name] / length(full))


def test_more_records_than_memory_holds_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    local = program("fedmf")
    found = []
    for limit in (2**25, 1):
        monkeypatch.setattr("edgefr.engine.executors.dp_sgd.AT_ONCE", limit)
        private, tensors = steps(local, 0.05, sigma=0.5)
        found.append(private.step(tensors, RECORDS, KEY.stream(4, "test")))
    assert_all_same(found[1], found[0])


def test_a_steps_noise_is_the_next_part_of_the_stream_in_the_order_of_tensors() -> None:
    local = program("fedmf")
    private, tensors = steps(local, clip=0.02, sigma=3.0)
    quiet, _ = steps(local, clip=0.02)
    truth, stream, literal = quiet.step(tensors, RECORDS), KEY.stream(1, "test"), KEY.stream(1, "test").generator
    for _ in range(2):
        found = private.step(tensors, RECORDS, stream)
        for name in local.phases[0].trains:
            noise = 3.0 * 0.02 / PLANNED * literal.standard_normal(tuple(tensors[name].shape))
            assert found[name].dtype == tensors[name].dtype
            assert_same(found[name], truth[name].double() + torch.from_numpy(noise), inputs=torch.float32)


def test_a_step_that_is_to_be_noised_needs_a_stream_of_the_runs_key() -> None:
    private, tensors = steps(program("fedmf"), clip=0.02, sigma=3.0)
    with pytest.raises(TypeError, match="noise is drawn from a stream of the run's noise key"):
        private.step(tensors, RECORDS)


def test_a_gradient_that_is_not_finite_counts_as_zero() -> None:
    local = program("fedmf")
    private, tensors = steps(local, clip=1.0)
    table = tensors["item"].clone()
    table[9] = math.nan
    found = private.step({**tensors, "item": table}, RECORDS)
    assert all(bool(value.isfinite().all()) for value in found.values())
    assert length(found) > 0


# --- the executor -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["fedmf", "pfedrec", "transfr vector"])
def test_a_clients_noise_is_its_own_and_the_same_again_whoever_is_in_the_call(variant: str) -> None:
    local = program(variant, local_epochs=1)
    everyone = trained(DPSGD(0.5, 1.0, KEY), local, np.array([1, 3, 4]))
    again, alone = (trained(DPSGD(0.5, 1.0, KEY), local, np.array(c)) for c in ([1, 3, 4], [3]))
    for name, value in of(everyone, 1).items():
        assert torch.equal(value, of(again, 1)[name])
        assert torch.equal(value, of(alone, 0)[name])
        assert not torch.equal(value, of(everyone, 0)[name])
    other = DPSGD(0.5, 1.0, KEY)(replace(work(local), round=3), *start(local, np.array([3])), np.array([3]))
    assert not all(torch.equal(v, of(other, 0)[n]) for n, v in of(alone, 0).items())
    of_nobodys_key = trained(DPSGD(0.5, 1.0), local, np.array([3]))
    assert not any(torch.equal(v, of(of_nobodys_key, 0)[n]) for n, v in of(alone, 0).items()), "the seed is not enough"


def test_clients_whose_keys_begin_alike_have_different_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """All digests share their first 32 bits; a generator that takes no more of them draws alike for everybody."""
    right = NoiseKey._digest
    monkeypatch.setattr(NoiseKey, "_digest", lambda self, *parts: bytes(4) + right(self, *parts)[4:])
    local = program("fedmf", local_epochs=1)
    found = trained(DPSGD(1e-6, 1e6, KEY), local, np.array([1, 3]))
    one, other = (of(found, slot)["item"].double().flatten() for slot in (0, 1))
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 5 / math.sqrt(len(one))


def test_every_row_of_a_table_has_changed_and_the_broadcast_has_not() -> None:
    local, clients = program("fedmf"), np.array([2, 4])
    shared, private = start(local, clients)
    kept = shared["item"].clone()
    found = DPSGD(1.0, 1.0)(work(local), shared, private, clients)
    assert torch.equal(shared["item"], kept)
    assert len(found.rows["item"].rows) == 2 * ITEMS
    assert bool((found.rows["item"].values != 0).all())


def test_local_training_after_the_rounds_is_the_plain_one() -> None:
    local, clients = program("transfr vector"), np.arange(CLIENTS)
    found, plain = (trained(executor, local, clients, when="final") for executor in (DPSGD(1e-3, 9.0), inline.run))
    assert found.private.keys() == plain.private.keys()
    assert all(torch.equal(found.private[name], value) for name, value in plain.private.items())


def test_an_example_is_used_once_per_epoch_of_every_phase_of_a_round() -> None:
    assert [uses_per_round(program(v, local_epochs=3)) for v in ("fedmf", "pfedrec", "transfr vector")] == [3, 6, 3]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", PLAIN)
def test_the_methods_of_the_table_pass_the_probe(variant: str) -> None:
    start_up_probe(program(variant), seed=1, negatives=3, device=CPU)


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant not in PLAIN])
def test_every_other_method_of_the_table_is_refused(variant: str) -> None:
    with pytest.raises(InputError, match=r"privacy\.examples"):
        start_up_probe(program(variant), seed=1, negatives=3, device=CPU)


@pytest.mark.parametrize(
    ("variant", "message"), [("transfr mean", "user_encoder=vector"), ("transfr lora", "model.client=mlp")]
)
def test_examples_that_depend_on_one_another_are_refused(variant: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_program(program(variant))
    with pytest.raises(InputError, match=message):
        trained(DPSGD(1.0, 1.0), program(variant), np.array([1]))


class Centred(FedMF):
    """Subtracts the batch's mean score, as batch normalisation does: every example moves every gradient."""

    def score(self, tensors: Tensors, batch: One, vectors: torch.Tensor, user: torch.Tensor) -> torch.Tensor:
        scores = super().score(tensors, batch, vectors, user)
        return scores - 0.5 * (scores * batch.weight).sum(-1, keepdim=True)


class Forgetful(FedMF):
    """Takes a tensor for a constant where there is one record alone, as a cache of vectors would."""

    def loss(self, tensors: Tensors, batch: One, phase: Phase) -> torch.Tensor:
        seen = tensors["user"].detach() if batch.items.numel() <= 4 else tensors["user"]
        return super().loss({**tensors, "user": seen}, batch, phase)


class Branching(FedMF):
    """Decides by a value, which has no gradients of single records."""

    def loss(self, tensors: Tensors, batch: One, phase: Phase) -> torch.Tensor:
        loss = super().loss(tensors, batch, phase)
        return loss if loss > 0.5 else 2 * loss


class Still(FedMF):
    """Has no gradient."""

    def loss(self, tensors: Tensors, batch: One, phase: Phase) -> torch.Tensor:
        return 0.0 * super().loss(tensors, batch, phase)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Centred, r"tensor \w+ fails probe 'batch'"),
        (Forgetful, "tensor user fails probe 'batch'"),
        (Branching, "its loss has no gradients of single examples"),
        (Still, "its gradients are zeros or not finite"),
    ],
)
def test_planted_programs_are_refused(kind: type[FedMF], message: str) -> None:
    planted = kind(FedMFSettings(dim=4), items=ITEMS, local_epochs=1)
    with pytest.raises(InputError, match=message) as caught:
        start_up_probe(planted, seed=1, negatives=3, device=CPU)
    assert "\n" not in str(caught.value)
