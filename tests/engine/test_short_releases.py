"""Rounds whose releases are projected, of some tensors alone, on a grid, or sealed until enough clients are in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cloud.rule import AggregationSettings
from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.aggregate import SHORT, JointVector, ReleaseTerms, release, released_values, restricted
from edgefr.engine.executors import inline
from edgefr.engine.federation import Federation
from edgefr.engine.footprint import round_work
from edgefr.engine.noise import SimulatedNoise
from edgefr.engine.work import LocalWork, Updates
from edgefr.methods.fedncf.program import FedNCF
from edgefr.methods.fedncf.settings import FedNCFSettings
from edgefr.methods.pfedrec.program import PFedRec
from edgefr.methods.pfedrec.settings import PFedRecSettings
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from privacy.compress import Projection
from privacy.errors import InputError
from privacy.plan import plan
from privacy.settings import PrivacySettings
from tests.closeness import assert_same
from tests.noises import KEY

CLIENTS, ITEMS, DIM, K = 12, 30, 4, 40
EVERYONE = np.arange(CLIENTS)


def interactions() -> Ragged:
    rng = np.random.default_rng(4)
    return Ragged.from_lists([rng.choice(ITEMS, n, replace=False) for n in rng.integers(1, 12, CLIENTS)])


def sampler() -> Sampler:
    return Sampler(interactions(), np.arange(ITEMS), ITEMS, negatives=2, batch_size=8, seed=0)


def program(kind: str = "rows") -> Any:
    """One whose clients upload changed rows of a table, or one whose clients upload dense tensors."""
    if kind == "rows":
        return FedNCF(FedNCFSettings(dim=DIM, lr=0.5), ITEMS, 1)
    text = torch.from_numpy(np.random.default_rng(2).normal(size=(ITEMS, 10)).astype(np.float32))
    return TransFR(TransFRSettings(adapter=[6, 4], head=[4], adapter_init="random"), text, 1)


def federation(shard_size: int = 5, rule: str = "mean", kind: str = "rows", **privacy: Any) -> Federation:
    settings = PrivacySettings.model_validate(privacy)
    made = restricted(program(kind), settings.tensors)
    return Federation(
        made,
        clients=CLIENTS,
        seed=0,
        shard_size=shard_size,
        aggregation=AggregationSettings(rule=rule),  # type: ignore[arg-type]
        plan=plan(settings, 5, CLIENTS, CLIENTS, values=released_values(made, settings.project)),
        device=torch.device("cpu"),
        noise=SimulatedNoise(KEY, 0),
    )


def moved(made: Federation, number: int = 1, cohort: np.ndarray = EVERYONE) -> dict[str, np.ndarray]:
    """What one round changes in the shared tensors, float64."""
    before = {name: value.double() for name, value in made.shared.items()}
    made.round(number, cohort, sampler(), interactions())
    return {name: (value.double() - before[name]).numpy() for name, value in made.shared.items()}


def literal_updates(made: Federation) -> np.ndarray:
    """Each client's whole update as one vector, client by client: float64 [clients, d]."""
    out = []
    phases = made.phases("round")
    for client in range(CLIENTS):
        work = LocalWork(made.program, phases, sampler(), interactions(), 1, torch.device("cpu"))
        own = {name: value[[client]] for name, value in made.private.items()}
        found = inline.run(work, made.shared, own, np.array([client]))
        whole = {name: torch.zeros(shape) for name, shape in made._shapes().items()}
        for name, value in found.dense.items():
            whole[name] += value[0]
        for name, update in found.rows.items():
            whole[name][update.rows] += update.values
        out.append(np.concatenate([value.double().numpy().ravel() for value in whole.values()]))
    return np.array(out)


def flat(made: Federation, change: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([change[name].ravel() for name in made._shapes()])


def largest(made: Federation) -> float:
    """The largest shared value: a change of the model is the difference of two of them."""
    return max(float(value.abs().max()) for value in made.shared.values())


@pytest.mark.parametrize("kind", ["rows", "dense"])
@pytest.mark.parametrize("clip", [None, 0.01])
def test_a_projected_round_is_the_mean_of_clipped_projections_taken_back(kind: str, clip: float | None) -> None:
    made = federation(project=K, clip=clip, kind=kind)
    vectors = literal_updates(made)
    projection = Projection.of_round(0, 1, vectors.shape[1], K)
    short = projection.forth(vectors)
    if clip is not None:
        assert (np.linalg.norm(short, axis=1) > clip).any()
        short *= np.minimum(1.0, clip / np.linalg.norm(short, axis=1))[:, None]
    expected = projection.back(short.mean(axis=0))
    assert_same(flat(made, moved(made)), expected, size=largest(made), inputs=torch.float32)
    norms = np.sort(made.counters.norms.values)
    np.testing.assert_allclose(norms, np.sort(np.linalg.norm(projection.forth(vectors), axis=1)), rtol=1e-5)


def short(updates: np.ndarray, projection: Projection, clip: float, norm: str) -> np.ndarray:
    """What each of some clients releases of the updates [C, d] of one tensor, each in a shard with all before it."""
    terms = ReleaseTerms(clip, norm, False, True, joint=JointVector({"w": updates.shape[1:]}, projection))
    sums = [np.zeros(projection.kept)]
    for count in range(1, len(updates) + 1):
        some = Updates({"w": torch.from_numpy(updates[:count])}, {}, {})
        sums.append(release(some, np.ones(count, np.int64), terms).dense[SHORT].numpy())
    return np.diff(sums, axis=0)


@given(
    hnp.arrays(np.float32, (3, 11), elements=st.floats(width=32)),
    st.floats(1e-3, 1e3),
    st.sampled_from(["l1", "l2"]),
    st.integers(0, 100),
)
@settings(deadline=None, max_examples=60)
def test_what_is_released_is_within_the_clip_for_any_floats(
    updates: np.ndarray, bound: float, norm: str, key: int
) -> None:
    """Also of clients that diverged: they release zeros."""
    made, order = Projection(key, 11, 5), 1 if norm == "l1" else 2
    for client in range(3):
        alone = short(updates[[client]], made, bound, norm)[0]
        assert np.linalg.norm(alone, order) <= bound
        assert not alone.any() or np.isfinite(updates[client]).all()


@pytest.mark.parametrize(("trust", "count"), [("local", CLIENTS), ("central", 1)])
def test_noise_is_drawn_for_the_projected_values(trust: str, count: int) -> None:
    quiet, loud = (
        federation(project=K, clip=0.3),
        federation(project=K, clip=0.3, mechanism="laplace", norm="l1", sigma=1.0, trust=trust),
    )
    quiet.plan = loud.plan
    quiet.terms = loud.terms
    object.__setattr__(quiet, "_noise", lambda *args: iter(()))
    difference = flat(loud, moved(loud)) - flat(quiet, moved(quiet))
    width, noise = len(difference), loud.plan.noise
    assert noise is not None
    draw = noise.of_sum(count, (K,), KEY.stream(0, "noise projected", 1))
    expected = Projection.of_round(0, 1, width, K).back(draw) / CLIENTS
    assert_same(difference, expected, size=largest(loud), inputs=torch.float32)


def test_only_the_named_tensors_move_and_only_they_are_released() -> None:
    every = federation(kind="dense", clip=0.3)
    names = list(every._shapes())[2:]  # the second layer of the adapter, 6 x 4 and 4
    made = federation(kind="dense", clip=0.3, tensors=names)
    private = {name: value.clone() for name, value in made.private.items()}
    change = moved(made)
    assert {name for name, value in change.items() if value.any()} == set(names)
    assert {name for name, value in private.items() if (made.private[name] != value).any()} == {"user"}  # as ever
    assert released_values(made.program, None) == 6 * 4 + 4
    assert released_values(every.program, None) == 10 * 6 + 6 + 6 * 4 + 4


def test_a_phase_with_nothing_left_to_train_is_gone() -> None:
    made = PFedRec(PFedRecSettings(dim=DIM), ITEMS, 1)
    assert [phase.name for phase in made.phases if phase.when == "round"] == ["scorer", "item"]
    with pytest.raises(InputError, match="trains no shared tensor 'user' in rounds"):
        restricted(made, ["user"])
    with pytest.raises(InputError, match=r"pfedrec trains no shared tensor 'itme' in rounds: .*'item'"):
        restricted(made, ["itme"])
    before = made.phases
    assert restricted(made, None).phases == before
    with pytest.raises(InputError, match=r"rounds of pfedrec train no other shared tensor than \['item'\]: drop it"):
        restricted(made, ["item"])


def test_bytes_up_are_those_of_the_projection() -> None:
    made = program()
    found = [round_work(made, made.phases, sampler(), EVERYONE, EVERYONE < 0, project) for project in (None, K)]
    whole = sum(spec.size for spec in made.specs.values() if spec.place == "shared")
    assert [work.bytes_up for work in found] == [4 * whole, 4 * K]
    assert np.array_equal(found[0].bytes_down, found[1].bytes_down)


GRID: dict[str, Any] = {"sampler": "grid", "grid_exponent": -12, "clip": 0.3}


@pytest.mark.parametrize("trust", ["local", "central"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("project", [None, K])
def test_on_a_grid_the_sum_is_a_multiple_of_the_step(
    trust: str, mechanism: str, project: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = federation(**GRID, trust=trust, mechanism=mechanism, sigma=0.5, project=project)
    assert made.plan.sensitivity == (0.6 if trust == "local" else 0.3)  # rounding toward zero has no price
    seen = []
    move = made._move

    def watched(changed: list[str], total: Any, *rest: Any) -> None:
        seen.append(total)
        move(changed, total, *rest)

    monkeypatch.setattr(made, "_move", watched)
    moved(made)
    for value in seen[0].sums.values():
        steps = value.numpy() * 2.0**12
        np.testing.assert_array_equal(steps, np.rint(steps))
        assert (steps % 2).any()


def test_a_round_of_too_few_clients_moves_nothing_and_is_counted() -> None:
    made = federation(at_least=4, clip=0.3, mechanism="gaussian", sigma=1.0)
    assert not any(value.any() for value in moved(made, 1, EVERYONE[:3]).values())
    assert made.counters.closed == 1
    assert all(value.any() for value in moved(made, 2, EVERYONE[:4]).values())
    assert made.counters.closed == 1
    again = federation(at_least=4)
    again.restore({**made.state(), "shared": {}, "private": {}})
    assert again.counters.closed == 1


@pytest.mark.parametrize(
    ("rule", "privacy", "words"),
    [
        ("median", {"project": K}, "a projection is made for a plain sum, which rule median"),
        ("norm-bounded", {"project": K}, "which rule norm-bounded does not take; use mean"),
        ("median", {"at_least": 2}, "rule median sees every upload, so privacy.at_least closes nothing"),
        ("mean", {"project": 100_000}, "a projection keeps 1 to 1"),
        ("mean", {"at_least": CLIENTS + 1}, "at_least 13 is more than the 12 clients of a round"),
        ("mean", {"tensors": ["item", "users"]}, "trains no shared tensor 'users'"),
    ],
)
def test_refuses_what_would_not_mean_what_it_says(rule: str, privacy: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        federation(rule=rule, **privacy)


def test_every_round_has_a_projection_of_its_own() -> None:
    changes = [flat(made, moved(made, number)) for number in (1, 2) for made in [federation(project=K, clip=0.3)]]
    maps = [Projection.of_round(0, number, len(changes[0]), K) for number in (1, 2)]
    for change, mine, other in zip(changes, maps, maps[::-1], strict=True):
        spread = [np.ptp(change[p.buckets == 3] * p.signs[p.buckets == 3]) for p in (mine, other)]
        assert spread[0] < 1e-6  # all values of a bucket are one number and its sign
        assert spread[1] > 1e-4


@pytest.mark.parametrize("shard_size", [1, 12])
def test_shards_do_not_matter_to_a_projection(shard_size: int) -> None:
    one = federation(project=K, clip=0.3)
    other = federation(shard_size, project=K, clip=0.3)
    assert_same(flat(other, moved(other)), flat(one, moved(one)), size=largest(one), inputs=torch.float32)


def test_rounding_keeps_each_client_within_the_stated_sensitivity() -> None:
    """A client of the central sum moves it by at most the clip, though every value of it is rounded."""
    made, without = (federation(**GRID, mechanism="gaussian", sigma=1e-9) for _ in range(2))
    fewer = EVERYONE[:-1]
    change = flat(made, moved(made)) * CLIENTS - flat(without, moved(without, cohort=fewer)) * len(fewer)
    assert 0.2 < np.linalg.norm(change) <= made.plan.sensitivity + 1e-4
    assert made.plan.sensitivity == 0.3


def test_enough_clients_make_the_same_round_as_without_a_seal() -> None:
    one, other = federation(at_least=CLIENTS, clip=0.3), federation(clip=0.3)
    np.testing.assert_array_equal(flat(one, moved(one)), flat(other, moved(other)))
