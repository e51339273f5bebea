"""FCUCR's local program against numbers worked out by hand, and one client's session against torch's own parts."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from edgefr.engine.aggregate import restricted
from edgefr.engine.executors import inline
from edgefr.methods.fcucr.prediction import Prediction
from edgefr.methods.fcucr.program import FCUCR
from edgefr.methods.fcucr.settings import FCUCRSettings
from export.batches import Window
from tests.closeness import after_training, assert_same
from tests.contract.sessions import CLIENTS, NEGATIVES, private_of, sampler, work
from tests.contract.sessions import program as small

ROWS = torch.tensor([[0.5, 1.0], [-1.0, 2.0], [3.0, -0.5], [0.25, 0.75]])


class Plain:
    """An encoder whose features are the items' vectors, times `encoder.scale`."""

    def specs(self) -> dict[str, tuple[int, ...]]:
        return {"scale": (1,)}

    def init(self, seed: int) -> dict[str, Tensor]:
        return {"scale": torch.ones(1)}

    def sites(self) -> dict[str, tuple[int, ...]]:
        return {}

    def encode(self, tensors, x: Tensor, real: Tensor, times: Tensor, drop: object = None) -> Tensor:
        return x * tensors["scale"].unsqueeze(-1)


def plain(**options: object) -> FCUCR:
    """The program over `Plain`, without an MLP unless asked."""
    chosen = {"dim": 2, "length": 3, "personal": False, "prototypes": "none", "teacher": "none", **options}
    made = FCUCR(FCUCRSettings.model_validate(chosen), 4, 1)
    made.encoder = Plain()
    return made


def window(taught: Tensor | None = None) -> Window:
    """Items 1 and 2 after a place of padding; their targets are 2 and 0, with negatives 3, 0 and 3, 1."""
    real = torch.tensor([0.0, 1.0, 1.0])
    items = torch.tensor([0, 1, 2])
    positive, negative = torch.tensor([0, 2, 0]), torch.tensor([[0, 0], [3, 0], [3, 1]])
    return Window(items, items, real, real / 2, times=real, positive=positive, negative=negative, taught=taught)


def loss(program: FCUCR, batch: Window, **tensors: Tensor) -> float:
    everything = {"item": ROWS, "encoder.scale": torch.ones(1), **tensors}
    return float(program.loss(everything, batch, program.phases[0]))


def product(a: int, b: int) -> float:
    return float(ROWS[a] @ ROWS[b])


BCE = [
    log(1 + exp(-product(1, 2))) + (log(1 + exp(product(1, 3))) + log(1 + exp(product(1, 0)))) / 2,
    log(1 + exp(-product(2, 0))) + (log(1 + exp(product(2, 3))) + log(1 + exp(product(2, 1)))) / 2,
]
SOFTMAX = [
    -log(exp(product(1, 2)) / sum(exp(product(1, j)) for j in (2, 3, 0))),
    -log(exp(product(2, 0)) / sum(exp(product(2, j)) for j in (0, 3, 1))),
]
TAUGHT = torch.tensor([[9.0, 9.0], [0.0, 1.0], [3.0, 0.5]])
APART = ((1 + 1) / 2 + (0 + 1) / 2) / 2
"""FCUCR Eq. 3 by hand: features (-1, 2) and (3, -0.5) against (0, 1) and (3, 0.5); padding does not count."""


# --- the loss --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "expected"), [("bce", BCE), ("softmax", SOFTMAX)])
def test_the_loss_is_the_mean_over_the_real_positions(kind: str, expected: list[float]) -> None:
    assert loss(plain(loss=kind), window()) == pytest.approx(sum(expected) / 2, rel=1e-6)


@pytest.mark.parametrize("most", [0.5, 100.0])
def test_clamped_distillation_weighs_no_more_than_the_loss_and_has_no_gradient_of_its_weight(most: float) -> None:
    program = plain(teacher="received_global", distill="clamped", distill_weight=most)
    own, scale = sum(BCE) / 2, torch.ones(1, requires_grad=True)
    weight = min(own / APART, most)
    assert (weight == most) == (most == 0.5), "both sides of the minimum are tried"
    everything = {"item": ROWS, "encoder.scale": scale}
    found = program.loss(everything, window(TAUGHT), program.phases[0])
    assert found.item() == pytest.approx(own + weight * APART, rel=1e-6)
    fixed = plain(teacher="received_global", distill_weight=weight)
    expected = fixed.loss(everything, window(TAUGHT), fixed.phases[0])
    assert torch.autograd.grad(found, scale)[0] == pytest.approx(float(torch.autograd.grad(expected, scale)[0]))


def test_features_equal_to_the_teachers_are_no_division_by_zero() -> None:
    program = plain(teacher="received_global", distill="clamped")
    assert loss(program, window(ROWS[[0, 1, 2]])) == pytest.approx(sum(BCE) / 2, rel=1e-6)


def test_an_items_bias_is_added_to_its_score() -> None:
    bias = [0.5, -1.0, 0.25, 2.0]
    program = plain(item_bias=True)
    rows = torch.cat([ROWS, torch.tensor(bias).unsqueeze(1)], 1)
    scores = [[(2, 1), (3, 0), (0, 0)], [(0, 1), (3, 0), (1, 0)]]
    each = [
        log(1 + exp((1 - 2 * label) * (product(item, j) + bias[j]))) * (1 if label else 0.5)
        for item, three in zip((1, 2), scores, strict=True)
        for j, label in three
    ]
    assert loss(program, window(), item=rows) == pytest.approx(sum(each) / 2, rel=1e-6)


def test_at_unit_length_scores_are_cosines_over_the_temperature() -> None:
    def cosine(a: int, b: int) -> float:
        return product(a, b) / float(ROWS[a].norm() * ROWS[b].norm()) / 0.25

    each = [
        -log(exp(cosine(1, 2)) / sum(exp(cosine(1, j)) for j in (2, 3, 0))),
        -log(exp(cosine(2, 0)) / sum(exp(cosine(2, j)) for j in (0, 3, 1))),
    ]
    program = plain(loss="softmax", unit=True, temperature=0.25)
    assert loss(program, window()) == pytest.approx(sum(each) / 2, rel=1e-6)
    assert loss(program, window(), item=7 * ROWS) == pytest.approx(sum(each) / 2, rel=1e-6)
    with pytest.raises(ValueError, match="a bias would count in the length"):
        plain(unit=True, item_bias=True)


# --- teachers and prototypes -----------------------------------------------------------------------------------------


def test_whose_features_are_taught() -> None:
    tensors = {"item": ROWS, "encoder.scale": torch.tensor([2.0]), "previous.encoder.scale": torch.tensor([-1.0])}
    real = ROWS[[0, 1, 2]] * torch.tensor([[0.0], [1.0], [1.0]])
    assert plain().teach(tensors, window()) is None
    for teacher, expected in (("received_global", 2 * real), ("previous_local", -real)):
        torch.testing.assert_close(plain(teacher=teacher).teach(tensors, window()), expected, atol=0, rtol=0)


@pytest.mark.parametrize("masked", [True, False])
def test_a_prototype_is_the_mean_of_the_real_features_or_all_of_them(masked: bool) -> None:
    """The released encoder has features at padding, which are no part of a mean."""
    features, real = torch.tensor([[8.0, 8.0], [1.0, 2.0], [3.0, 6.0]]), torch.tensor([0.0, 1.0, 1.0])
    mean = plain(personal=True, prototypes="received", masked=masked)
    assert mean.form.pooled(features, real).tolist() == [2.0, 4.0]
    whole = plain(personal=True, prototypes="received", pooling="map", masked=masked)
    assert whole.form.pooled(features, real).tolist() == [8.0, 8.0, 1.0, 2.0, 3.0, 6.0]
    assert plain(personal=True).publish({}, window()) is None


# --- the MLP ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("xavier", [False, True])
def test_a_clients_first_mlp_is_its_own_and_as_wide_as_its_inputs_ask(xavier: bool) -> None:
    mlp = Prediction(8, 5, scaled=True, running=True, xavier=xavier)
    all_of, some = (mlp.init(0, np.array(who)) for who in (range(60), (7, 3)))
    assert all(torch.equal(all_of[name][[7, 3]], value) for name, value in some.items())
    drawn = [f"prediction.{layer}.{part}" for layer in (0, 1) for part in ("weight", "bias")]
    assert all(not torch.equal(some[name][0], some[name][1]) for name in drawn)
    for name, wide, out in (("0", 16, 5), ("1", 5, 8)):
        for part in ("weight", "bias"):
            values = all_of[f"prediction.{name}.{part}"]
            normal = xavier and part == "weight"
            assert normal or values.abs().max() <= 1 / sqrt(wide)
            spread = sqrt(2 / (wide + out)) if normal else 1 / sqrt(3 * wide)
            assert values.std() == pytest.approx(spread, rel=0.15)
    fixed = {"slope": 0.0, "scale": 1.0, "shift": 0.0, "mean": 0.0, "variance": 1.0}
    for name, value in fixed.items():
        assert (all_of[f"prediction.{name}"] == value).all()


# --- one client, whole -----------------------------------------------------------------------------------------------


def by_torch(program: FCUCR, shared: dict[str, Tensor], private: dict[str, Tensor], client: int) -> dict[str, Tensor]:
    """One client's round with a whole torch.nn.Embedding, torch.optim.Adam and the window as it is, without padding."""
    draws, options = sampler(), program.settings
    draw = draws.draw(np.array([client]), "round", 2, 3)
    places = np.flatnonzero(draw.real[0])
    inputs, targets = (torch.from_numpy(draw.touched[part[0, places]]) for part in (draw.inputs, draw.positives))
    negatives = torch.from_numpy(draw.touched[draw.negatives[:, 0, places]])
    table = torch.nn.Embedding.from_pretrained(shared["item"].clone(), freeze=False)
    own = {n: v.clone().requires_grad_() for n, v in {**shared, **private}.items() if n in program.phases[0].trains}
    own.pop("item")

    def features(encoder: dict[str, Tensor], vectors: Tensor) -> Tensor:
        named = {n.removeprefix("encoder."): v for n, v in encoder.items() if n.startswith("encoder.")}
        named = {n: v[-len(places) :] if n.startswith("position") else v for n, v in named.items()}
        times = torch.from_numpy(draw.times[0, places])
        return program.encoder.encode(named, vectors, torch.ones(len(places), dtype=vectors.dtype), times)

    previous = {n.removeprefix("previous."): v for n, v in private.items() if n.startswith("previous.encoder.")}
    with torch.no_grad():
        taught = features(previous, table(inputs)) if previous else None
    optimiser = torch.optim.Adam([table.weight, *own.values()], lr=options.lr, betas=(0.9, 0.98))
    for epoch in range(3):
        h = features(own, table(inputs))
        out = h
        if options.personal:
            reply = private["prototype"] if options.reply else torch.zeros(6, dtype=h.dtype)
            wide = torch.cat([h, reply.expand_as(h)], 1) @ own["prediction.0.weight"] + own["prediction.0.bias"]
            gate = torch.sigmoid((wide - wide.mean(0)) / (wide.var(0, correction=0) + 1e-5).sqrt())
            bent = gate * wide + (1 - gate) * own["prediction.slope"] * wide
            out = bent @ own["prediction.1.weight"] + own["prediction.1.bias"]
        scores = torch.cat([table(targets).unsqueeze(1), table(negatives[epoch])], 1) @ out.unsqueeze(2)
        label = torch.tensor([1.0, *[0.0] * NEGATIVES], dtype=h.dtype).expand(len(h), -1)
        weight = torch.tensor([1.0, *[1 / NEGATIVES] * NEGATIVES], dtype=h.dtype)
        each = F.binary_cross_entropy_with_logits(scores.squeeze(2), label, weight, reduction="none")
        total = each.sum(1).mean()
        if taught is not None and private["previous.known"] > 0:
            total = total + options.distill_weight * F.mse_loss(h, taught)
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
    return {"item": table.weight.detach(), **{name: value.detach() for name, value in own.items()}}


@pytest.mark.parametrize("variant", ["sasrec", "gru4rec", "tisasrec", "fcucr", "without prototypes"])
def test_a_round_of_a_client_is_that_of_torch_over_the_whole_table(variant: str) -> None:
    """Adam over the rows that are read is Adam over the table; clients 2 and 7 fill their window, 1 has one item."""
    program, clients = small(variant), np.arange(CLIENTS)
    shared = {name: value.double() for name, value in program.init_shared(3).items()}
    private = {name: value.double() for name, value in private_of(program, clients).items()}
    found = inline.run(work(program), shared, private, clients)
    for client in (1, 2, 4, 7):
        expected = by_torch(program, shared, {name: value[client] for name, value in private.items()}, client)
        table = shared["item"].clone()
        mine = found.rows["item"].client == client
        table[found.rows["item"].rows[mine]] += found.rows["item"].values[mine]
        learned = {"item": table, **{name: shared[name] + value[client] for name, value in found.dense.items()}}
        learned |= {name: value[client] for name, value in found.private.items() if name in expected}
        assert learned.keys() == expected.keys()
        for name in expected:
            allowed = after_training(program.phases, 3, shared)
            assert_same(learned[name], expected[name], **allowed, name=f"{client}: {name}")
        assert (table - shared["item"]).abs().max() > 1e-4


@pytest.mark.parametrize("left", [["item"], ["encoder.norm.scale"]])
def test_rounds_may_train_some_of_the_shared_tensors(left: list[str]) -> None:
    """privacy.tensors; the encoder that a client remembers is then the one it has, trained or not."""
    program, clients = small("fcucr"), np.arange(CLIENTS)
    restricted(program, left)
    shared = program.init_shared(3)
    found = inline.run(work(program), shared, private_of(program, clients), clients)
    assert [*found.dense, *found.rows] == left
    for name in (name for name in program.specs if name.startswith("previous.encoder.")):
        now = shared[name.removeprefix("previous.")] + found.dense.get(name.removeprefix("previous."), 0)
        assert_same(found.private[name], now.expand(CLIENTS, *program.specs[name].shape))
