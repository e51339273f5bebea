"""FedCAR against Eq. 8-20 written out in numpy, one candidate at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.ragged import Ragged
from edge.sampling import Examples, Sampler
from edgefr.engine.aggregate import restricted
from edgefr.engine.executors import debug, inline
from edgefr.engine.scoring import ModelScorer
from edgefr.engine.work import LocalWork
from edgefr.experiment.experiment import load_experiment
from edgefr.methods.fedcar.program import FedCAR
from edgefr.methods.fedcar.settings import FedCARSettings
from edgefr.simulation.bundle_checks import check_shippable
from export.batches import One
from export.learning import unlearnable
from privacy.errors import InputError
from tests.federations import begun

ITEMS, DIM, L = 40, 4, 3
SHAPES = [
    {},
    {"heads": 2, "norm": "pre", "negative": "vectors"},
    {"norm": "none", "attention": "projected", "negative": "both", "feed_forward": 7},
]


def made(**changes) -> FedCAR:
    asked = {"dim": DIM, "context": L, **({} if changes.get("negative") == "none" else {"margin": 1.3}), **changes}
    return FedCAR(FedCARSettings(**asked), ITEMS, 1)


def tensors_of(local: FedCAR, seed: int = 0) -> dict[str, np.ndarray]:
    """Every tensor of one client, none of them at a special value."""
    rng = np.random.default_rng(seed)
    out = {name: rng.normal(0, 0.6, spec.shape) for name, spec in local.specs.items()}
    return out | ({"previous.known": np.ones(1)} if "previous.known" in out else {})


# --- the paper, in plain numpy ----------------------------------------------------------------------------------------


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def normed(x: np.ndarray, wanted: bool) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) if wanted else x


def attend(q: np.ndarray, keys: list[np.ndarray], values: list[np.ndarray]) -> np.ndarray:
    share = softmax(np.array([q @ k for k in keys]) / np.sqrt(len(q)))
    return sum(a * v for a, v in zip(share, values, strict=True))


def context_of(s: FedCARSettings, e: dict[str, np.ndarray], rows: list[np.ndarray], q: np.ndarray) -> np.ndarray:
    """c of a candidate, by the rows that there are (Eq. 10-13)."""
    if not rows:
        return np.zeros(s.dim)
    before, after = {"post": (False, True), "pre": (True, False), "none": (False, False)}[s.norm]
    z = [row + e["position"][L - len(rows) + at] for at, row in enumerate(rows)]  # Eq. 10
    inner, width = [normed(x, before) for x in z], s.dim // s.heads
    mixed = []
    for x in inner:
        heads = []
        for h in range(s.heads):
            own = slice(h * width, (h + 1) * width)
            keys, values = ([(other @ e[w])[own] for other in inner] for w in ("key", "value"))
            heads.append(attend((x @ e["query"])[own], keys, values))
        found = np.concatenate(heads)
        mixed.append(found @ e["output"] if s.heads > 1 else found)
    z = [normed(x + m, after) for x, m in zip(z, mixed, strict=True)]
    hidden = []
    for x in z:
        wide = np.maximum(normed(x, before) @ e["wide"] + e["wide_bias"], 0)
        hidden.append(normed(x + wide @ e["narrow"] + e["narrow_bias"], after))  # Eq. 11
    if s.attention == "plain":
        return attend(q, hidden, hidden)  # Eq. 13
    keys, values = ([h @ e[name] for h in hidden] for name in ("context_key", "context_value"))
    return attend(q @ e["candidate"], keys, values)


def part(tensors: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def unpacked(local: FedCAR, vector: np.ndarray) -> dict[str, np.ndarray]:
    out, at = {}, 0
    for name, shape in local.encoder.shapes.items():
        out[name] = vector[at : at + int(np.prod(shape))].reshape(shape)
        at += int(np.prod(shape))
    return out


def others(local: FedCAR, message: np.ndarray, rows: list[np.ndarray], q: np.ndarray) -> np.ndarray:
    """c of somebody else (Eq. 17-19), by what the message is."""
    if local.settings.negative == "vectors":
        return message
    encoder = unpacked(local, message)
    if local.settings.negative == "both":
        rows = list(message[local.encoder.values :].reshape(L, DIM))
    return context_of(local.settings, encoder, rows, q)


def losses(local: FedCAR, t: dict[str, np.ndarray], groups: np.ndarray, contexts: np.ndarray) -> tuple[float, float]:
    """Both losses of a batch of groups: a positive, then its negatives (Eq. 15 and 20, means over candidates)."""
    s, recommend, contrast = local.settings, [], []
    for group, context in zip(groups, contexts, strict=True):
        rows = [t["item"][item] for item in context if item >= 0]  # Eq. 8-9
        for place, item in enumerate(group):
            q = t["item"][item]  # Eq. 12
            c = context_of(s, part(t, "encoder."), rows, q)
            score = t["scorer.weight"] @ np.concatenate([c, q]) + t["scorer.bias"][0]  # Eq. 14
            chance = 1 / (1 + np.exp(-score))
            recommend.append(-np.log(chance) if place == 0 else -np.log(1 - chance))  # Eq. 15
            if s.negative != "none":
                near = context_of(s, part(t, "previous."), rows, q)  # Eq. 16
                far = others(local, t["message"], rows, q)
                contrast.append(max(0, ((c - near) ** 2).sum() - ((c - far) ** 2).sum() + s.margin))  # Eq. 20
    return float(np.mean(recommend)), float(np.mean(contrast)) if contrast else 0.0


def one_client(local: FedCAR, groups: np.ndarray, contexts: np.ndarray, t: dict[str, np.ndarray], phase: int) -> float:
    items = torch.from_numpy(groups.ravel())
    weight = torch.full((len(items),), 1 / len(items), dtype=torch.float64)
    drawn = Examples(groups.ravel(), np.zeros(len(items)), np.array([len(items)]), groups.shape[1], contexts)
    batch = debug.paired(One(items, items, weight, weight), drawn, 0)
    given = {name: torch.from_numpy(value) for name, value in t.items()}
    return float(local.loss(given, batch, local.phases[phase]))


@pytest.mark.parametrize("shape", SHAPES)
def test_both_losses_are_the_papers(shape: dict) -> None:
    local, rng = made(**shape), np.random.default_rng(3)
    groups = np.array([rng.choice(ITEMS, 4, replace=False) for _ in range(6)])
    contexts = rng.integers(0, ITEMS, (6, L)).astype(np.int32)
    contexts[0], contexts[1, :2] = -1, -1  # nothing before it, and one item
    t = tensors_of(local)
    wanted = losses(local, t, groups, contexts)
    assert one_client(local, groups, contexts, t, 0) == pytest.approx(wanted[0], rel=1e-6)
    assert one_client(local, groups, contexts, t, 1) == pytest.approx(wanted[1], rel=1e-6)
    assert wanted[1] > 0.1


def test_without_a_context_a_candidate_is_scored_alone() -> None:
    local, rng = made(context=0, negative="none"), np.random.default_rng(3)
    t, groups = tensors_of(local), rng.integers(0, ITEMS, (5, 4))
    scores = t["item"][groups] @ t["scorer.weight"] + t["scorer.bias"]
    wanted = np.where(np.arange(4) == 0, np.log1p(np.exp(-scores)), np.log1p(np.exp(scores))).mean()
    items = torch.from_numpy(groups.ravel())
    weight = torch.ones(len(items), dtype=torch.float64)
    drawn = Examples(groups.ravel(), np.zeros(20), np.array([20]), 4)
    batch = debug.paired(One(items, items, weight, weight), drawn, 0)
    found = local.loss({n: torch.from_numpy(v) for n, v in t.items()}, batch, local.phases[0])
    assert float(found) == pytest.approx(wanted, rel=1e-6)
    assert [phase.name for phase in local.phases] == ["recommend"]


@pytest.mark.parametrize("off", ["previous.known", "message"])
def test_there_is_no_contrast_before_there_is_something_to_contrast(off: str) -> None:
    local, t = made(), tensors_of(made())
    groups, contexts = np.arange(12).reshape(3, 4), np.arange(20, 29).reshape(3, L).astype(np.int32)
    assert one_client(local, groups, contexts, t, 1) > 0
    assert one_client(local, groups, contexts, t | {off: np.zeros_like(t[off])}, 1) == 0


# --- what a context is ------------------------------------------------------------------------------------------------


def trained(rows: list[list[int]], executor=inline.run, local: FedCAR | None = None, spoilt: int | None = None):
    """What a round makes of clients that had these items, in this order."""
    local = made() if local is None else local
    train = Ragged.from_lists(rows)
    sampler = Sampler(train, np.arange(ITEMS), ITEMS, 3, 16, 5)
    shared, private = local.init_shared(1), local.init_private(1, torch.arange(len(rows)))
    if spoilt is not None:
        shared["item"][spoilt] = torch.nan
    rng = np.random.default_rng(0)
    for name in ("message", "previous.known", *(f"previous.{n}" for n in local.encoder.shapes)):
        private[name] = torch.from_numpy(rng.normal(0, 0.4, private[name].shape).astype(np.float32))
    work = LocalWork(local, local.phases, sampler, train, 1, torch.device("cpu"))
    return executor(work, shared, private, np.argsort(-train.counts, kind="stable"))


def scores(rows: list[list[int]], local: FedCAR) -> np.ndarray:
    shared, private = local.init_shared(1), local.init_private(1, torch.arange(len(rows)))
    past = Ragged.from_lists(rows)
    return ModelScorer(local, shared, private, past, np.arange(ITEMS), ITEMS, torch.device("cpu"))(
        np.arange(len(rows)), None
    )


@given(st.lists(st.integers(0, ITEMS - 1), min_size=L, max_size=12, unique=True), st.randoms())
@settings(max_examples=25, deadline=None)
def test_the_order_of_what_is_older_changes_no_score(had: list[int], random) -> None:
    older = had[:-L]
    random.shuffle(older)
    local = made(negative="none")
    np.testing.assert_array_equal(scores([had], local), scores([older + had[-L:]], local))
    if len(had) > L:
        assert not np.array_equal(scores([had], local), scores([had[::-1]], local))


@pytest.mark.parametrize("executor", [inline.run, debug.run])
def test_padding_reads_no_item(executor) -> None:
    """Rows of items that nobody had or drew are not numbers; whatever a mask lets through would be seen."""
    rows = [[1, 2], [3], [4, 5, 6, 7, 8]]
    clean = trained(rows, executor)
    drawn = clean.rows["item"].rows.unique()
    free = np.setdiff1d(np.arange(ITEMS), drawn.numpy())
    assert len(free)
    for spoilt in {0, int(free[0]), ITEMS - 1} & set(free.tolist()):
        found = trained(rows, executor, spoilt=spoilt)
        torch.testing.assert_close(found.dense, clean.dense)
        torch.testing.assert_close(found.private, clean.private)


@pytest.mark.parametrize("negative", ["vectors", "both"])
def test_what_is_told_is_about_the_newest_positive(negative: str) -> None:
    rows = [[9, 8, 7, 6, 5], [3, 2]]
    local = made(negative=negative)
    found = trained(rows, debug.run, local)
    vectorised = trained(rows, inline.run, local)
    assert found.message is not None
    torch.testing.assert_close(vectorised.message, found.message, atol=1e-5, rtol=1e-4)
    client = 0
    after = {n: v[client] for n, v in found.dense.items()}
    shared = local.init_shared(1)
    encoder = {n.removeprefix("encoder."): (shared[n] + v).numpy() for n, v in after.items()}
    table = shared["item"].clone()
    own = found.rows["item"].client == client
    table[found.rows["item"].rows[own]] += found.rows["item"].values[own]
    told = found.message[client].numpy()
    if negative == "vectors":
        wanted = context_of(local.settings, encoder, list(table[[8, 7, 6]].numpy()), table[5].numpy())  # Eq. 17
        np.testing.assert_allclose(told, wanted, atol=1e-5)
    else:
        np.testing.assert_allclose(told[local.encoder.values :], table[[8, 7, 6]].numpy().ravel(), atol=1e-6)
        np.testing.assert_allclose(told[: L * DIM], encoder["position"].ravel(), atol=1e-6)


@pytest.mark.parametrize("negative", ["encoder", "vectors", "both"])
@pytest.mark.parametrize("left", [["item"], ["encoder.position"]])
def test_rounds_may_train_some_of_the_shared_tensors(left: list[str], negative: str) -> None:
    """privacy.tensors; what is sent and remembered of the encoder is then the one a client has, trained or not."""
    local, rows = made(negative=negative), [[9, 8, 7, 6, 5], [3, 2]]
    restricted(local, left)
    found, alone = trained(rows, inline.run, local), trained(rows, debug.run, local)
    assert [*found.dense, *found.rows] == left
    assert found.message is not None
    assert alone.message is not None
    assert found.message.shape == (2, local.specs["message"].size)
    torch.testing.assert_close(found.message, alone.message, atol=1e-5, rtol=1e-4)
    wide = local.init_shared(1)["encoder.wide"]
    torch.testing.assert_close(found.private["previous.wide"], wide.expand(2, *wide.shape))
    if negative != "vectors":
        after = L * DIM + 3 * DIM * DIM  # position, query, key, value
        told = found.message[:, after : after + DIM * DIM]
        torch.testing.assert_close(told, wide.flatten().expand(2, -1))


# --- where it runs ----------------------------------------------------------------------------------------------------


def test_a_held_out_item_is_asked_for_with_what_came_before_it() -> None:
    """The test's context has the validation item for its newest; other methods are told nothing new."""
    seen: dict[str, list[int]] = {}
    for method in ("fedcar", "fedmf"):
        asked = [f"method={method}", "data=demo", "rounds=1", "clients_per_round=4"]
        sim = begun(load_experiment(overrides=asked))
        local, (split,) = sim.schedule[-1], sim.prepared.splits.values()
        before, later = local._scorers(sim, sim.together(), split.train)
        user = int(split.users("test")[0])
        seen[method] = [scorer.context[user].tolist() for scorer in (before, later)]
        expected = split.train[user].tolist()
        assert seen[method] == [expected, expected + ([int(split.valid[user])] if method == "fedcar" else [])]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("protocol.name=sessions", "a session's are a set to it: set protocol.name=leave-one-out"),
        ("protocol.name=blocks strategy=reg", "nothing remembered has: use ft"),
        ("privacy.mechanism=gaussian privacy.clip=1 privacy.sigma=1", "model.negative=none"),
    ],
)
def test_what_it_has_no_place_in_is_refused(asked: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        load_experiment(overrides=["method=fedcar", *asked.split()])
    load_experiment(overrides=["method=fedcar", "protocol.name=blocks"])


def test_devices_learn_it_unless_its_messages_would_have_to_be_clipped() -> None:
    """A message beside a promised update would need a clip and noise of its own, which no device gives it."""
    check_shippable(load_experiment(overrides=["method=fedcar"]))
    assert unlearnable(made()) is None
    clipped = [
        "method=fedcar",
        "privacy.clip=1",
        "privacy.mechanism=gaussian",
        "privacy.scale=0.5",
        "privacy.trust=local",
    ]
    clipped += ["aggregation.weights=uniform"]
    with pytest.raises(InputError, match="no device clips and noises prototypes and other messages"):
        check_shippable(load_experiment(overrides=[*clipped, "export.learning=true"]))
    check_shippable(load_experiment(overrides=[*clipped, "export.learning=true", "model.negative=none"]))
