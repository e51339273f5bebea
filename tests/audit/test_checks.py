"""A right mechanism passes every check, and each planted fault is found by the check it is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cloud.aggregate import Accumulator
from edge import update as outgoing
from edge.learning import ReleaseRecord
from edge.update import Change
from edgefr.config import random_streams as purposes
from edgefr.engine import aggregate
from edgefr.engine.executors.dp_sgd import PrivateSteps
from edgefr.engine.federation import Federation
from edgefr.engine.work import Updates
from edgefr.simulation.bundles import NOISED
from edgefr.studies.audits import canaries, checks
from edgefr.studies.audits import channels as ways
from edgefr.studies.audits.canaries import PUBLIC, Channel, RealSumChannel, SumChannel
from edgefr.studies.audits.channels import StepChannel, UploadChannel
from edgefr.studies.audits.checks import FALSE_ALARM, Outcome, check
from export.program import TensorSpec
from privacy.example_plan import plan_examples
from privacy.ledger import Ledger
from privacy.mechanism import Noise
from privacy.noise_key import NoiseKey
from privacy.plan import PrivacyPlan, plan
from privacy.settings import ExampleSettings, PrivacySettings
from tests.mostly_slow import mostly_slow, mostly_slow_params

Patch = pytest.MonkeyPatch
SPECS = {
    "w": TensorSpec((6, 5), "shared"),
    "item": TensorSpec((40, 8), "shared", "rows"),
    "bias": TensorSpec((8,), "shared"),
}
VALUES = sum(spec.size for spec in SPECS.values())
GAUSSIAN = {"mechanism": "gaussian", "sigma": 0.5}
LAPLACE = {"mechanism": "laplace", "norm": "l1", "sigma": 0.5}


def planned(trust: str, **settings: Any) -> PrivacyPlan:
    return plan(PrivacySettings(clip=1.0, trust=trust, **(settings or GAUSSIAN)), 3, 10, 50, values=VALUES)


def upload(plan: PrivacyPlan, seed: int = 0) -> UploadChannel:
    noise = plan.noise
    assert noise is not None
    record = ReleaseRecord(
        clip=plan.clip,
        norm=plan.norm,
        noise=noise.kind,
        scale=noise.scale,
        step=noise.step,
        noised=NOISED[plan.where],
        weights="uniform",
        project=plan.project,
    )
    return UploadChannel(plan, record, SPECS, seed)


def stepping(sigma: float = 2.0) -> StepChannel:
    return StepChannel(plan_examples(ExampleSettings(clip=0.5, sigma=sigma), 1e-5, 3, 1), SPECS)


def violated(*some: Channel) -> dict[str, Outcome]:
    """The checks that found something."""
    return {found.check: found for found in check(some) if not found.ok}


RIGHT = [
    (settings, trust)
    for settings in (GAUSSIAN, LAPLACE, {**GAUSSIAN, "project": 20}, {**LAPLACE, "norm": "l2"})
    for trust in ("central", "local")
]


@pytest.mark.parametrize("right", mostly_slow(RIGHT, [(GAUSSIAN, "central"), (LAPLACE, "local")]), ids=str)
def test_right_mechanisms_pass(right: tuple[dict[str, Any], str]) -> None:
    settings, trust = right
    resolved = planned(trust, **settings)
    found = check([SumChannel(resolved, SPECS), RealSumChannel(resolved, SPECS), upload(resolved)])
    asked = {"claim", "noise", "law", "rounds", "clients", "clip", "diverged", "counted", "whole"}
    assert {one.check for one in found} >= asked
    assert all(one.ok for one in found), [one for one in found if not one.ok]


@pytest.mark.slow
def test_right_steps_pass() -> None:
    found = check([stepping()])
    assert {one.check for one in found} >= {"noise", "law", "rounds", "clients", "tensors", "steps", "clip"}
    assert all(one.ok for one in found)


def test_without_a_promise_nothing_is_asked_of_noise() -> None:
    found = check([SumChannel(plan(PrivacySettings(clip=1.0), 3, 10, 50), SPECS), upload(planned("central"))])
    assert {one.check for one in found} <= {"clip", "diverged", "bytes"}
    assert all(one.ok for one in found)


@pytest.mark.slow
def test_how_often_a_right_mechanism_is_accused(monkeypatch: Patch) -> None:
    """One audit in a million, by the bounds that are added up: of 40 audits the least chance is near 1 in 40."""
    monkeypatch.setattr(canaries, "VALUES", 3000)
    least = []
    for seed in range(40):
        found = check([SumChannel(planned("central", **(LAPLACE if seed % 2 else GAUSSIAN)), SPECS, seed)], seed)
        least.append(min(one.chance for one in found) * len(found))
    assert min(least) > 1e-4
    assert FALSE_ALARM == 1e-6


Plant = Callable[[Patch], None]


def wrapped(owner: Any, name: str, wrong: Callable[[Any], Any]) -> Plant:
    """A fault: what `wrong` makes of a function stands in its place."""
    return lambda patch: patch.setattr(owner, name, wrong(getattr(owner, name)))


def scaled(factor: float) -> Plant:
    def plant(patch: Patch) -> None:
        wrapped(Noise, "of_sum", lambda right: lambda self, *args: factor * right(self, *args))(patch)
        exact = Noise.exact
        patch.setattr(Noise, "exact", lambda self, size: np.rint(factor * exact(self, size)).astype(np.int64))

    return plant


def _uniform(self: Noise, count: Any, shape: tuple[int, ...], source: Any) -> Any:
    """Uniform noise of the right standard deviation: it hides nothing beyond its ends."""
    return self.std * 3**0.5 * getattr(source, "generator", source).uniform(-1, 1, shape)


def _bare_row(right: Any) -> Any:
    def noise(self: Accumulator, name: str, array: np.ndarray) -> None:
        if name == "item":
            array[17] = 0.0
        right(self, name, array)

    return noise


def _noise_on_something(right: Any) -> Any:
    def noise(self: Accumulator, name: str, array: np.ndarray) -> None:
        if any(bool(total.any()) for total in self.sums.values()):
            right(self, name, array)

    return noise


def _charged_once(self: Ledger, clients: Any, *events: Any) -> None:
    for event in events:
        self._released[self._number_of(event)][np.asarray(clients)] = 1


def noise_of_the_seed(patch: Patch) -> None:
    wrapped(NoiseKey, "stream", lambda right: lambda self, *path: right(PUBLIC, *path))(patch)
    wrapped(NoiseKey, "base", lambda right: lambda self, *path: right(PUBLIC, *path))(patch)


law_exchanged = wrapped(Noise, "of_sum", lambda right: _uniform)
one_draw_for_all_rows = wrapped(
    Noise,
    "of_sum",
    lambda right: (
        lambda self, count, shape, *args: (
            np.broadcast_to(right(self, count, shape[-1:], *args), shape) + np.zeros(shape)
        )
    ),
)
clip_without_tables, clip_without_dense = (
    wrapped(Updates, "norms", lambda right, part=part: lambda self, *args: right(replace(self, **{part: {}}), *args))
    for part in ("rows", "dense")
)
clip_twice_as_long = wrapped(
    aggregate, "factors_by", lambda right: lambda library, norms, bound: right(library, norms, 2.0 * bound)
)
noise_where_the_sum_is_not_zero = wrapped(
    Accumulator,
    "noise",
    lambda right: lambda self, name, a: right(self, name, np.where(self.sums[name].numpy() != 0, a, 0.0)),
)
no_noise_on_a_row = wrapped(Accumulator, "noise", _bare_row)
no_noise_on_nothing = wrapped(Accumulator, "noise", _noise_on_something)
every_round_alike = wrapped(Federation, "_noise", lambda right: lambda self, number, *rest: right(self, 1, *rest))
every_tensor_alike = wrapped(purposes, "noise", lambda right: lambda name: "noise")
every_client_alike = wrapped(
    Noise, "of_sum", lambda right: lambda self, count, *rest: np.asarray(count) * right(self, 1, *rest)
)
second_release_free = wrapped(Ledger, "spend", lambda right: _charged_once)
composition_forgotten = wrapped(
    checks, "composed", lambda right: lambda events, delta: right([(event, 1) for event, _ in events], delta)
)
sensitivity_halved = wrapped(PrivacySettings, "sensitivity", lambda right: property(lambda self: self.clip))
weighed_after_rounding = wrapped(Federation, "_weights", lambda right: lambda self, group: (1.0, group.weight))
"""An old update is made smaller after it was put on the grid."""


SUMS: list[tuple[str, dict[str, Any], Plant, str]] = [
    ("central", GAUSSIAN, scaled(0.5), "noise"),
    ("central", GAUSSIAN, scaled(0.7), "noise"),
    ("central", GAUSSIAN, scaled(0.95), "noise"),
    ("local", LAPLACE, scaled(0.5**0.5), "noise"),
    ("local", {**GAUSSIAN, "project": 20}, scaled(0.7), "noise"),
    ("central", GAUSSIAN, law_exchanged, "law"),
    ("central", GAUSSIAN, one_draw_for_all_rows, "tensors"),
    ("central", GAUSSIAN, clip_without_tables, "clip"),
    ("central", LAPLACE, clip_without_tables, "clip"),
    ("local", GAUSSIAN, clip_without_dense, "clip"),
    ("central", GAUSSIAN, clip_twice_as_long, "clip"),
    ("central", GAUSSIAN, noise_where_the_sum_is_not_zero, "noise"),
    ("central", GAUSSIAN, no_noise_on_a_row, "noise"),
    ("central", GAUSSIAN, no_noise_on_nothing, "diverged"),
    ("central", GAUSSIAN, every_round_alike, "rounds"),
    ("local", LAPLACE, every_round_alike, "rounds"),
    ("central", GAUSSIAN, noise_of_the_seed, "secret"),
    ("central", GAUSSIAN, every_tensor_alike, "tensors"),
    ("local", GAUSSIAN, every_client_alike, "clients"),
    ("local", GAUSSIAN, sensitivity_halved, "claim"),
    ("central", GAUSSIAN, second_release_free, "counted"),
    ("local", LAPLACE, second_release_free, "counted"),
    ("central", GAUSSIAN, composition_forgotten, "counted"),
    ("central", GAUSSIAN, weighed_after_rounding, "whole"),
    ("central", LAPLACE, weighed_after_rounding, "whole"),
]


def _named(cases: list[Any]) -> Iterator[Any]:
    known = {id(fault): name for name, fault in globals().items()}
    for number, case in enumerate(cases):
        yield pytest.param(*case, id=f"{number}-{case[-1]}-{known.get(id(case[-2]), 'scaled')}")


OF_SUMS = list(_named(SUMS))


@pytest.mark.parametrize(("trust", "settings", "plant", "name"), mostly_slow_params(OF_SUMS, OF_SUMS[::6]))
def test_faults_of_the_sum_are_found(
    trust: str, settings: dict[str, Any], plant: Plant, name: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    found = violated(SumChannel(planned(trust, **settings), SPECS))
    assert name in found, f"found {list(found)}"
    assert found[name].chance < FALSE_ALARM / len(checks.CHECKS)


def _generator_made_anew(self: Noise, size: int) -> Any:
    return np.rint(np.random.default_rng(1).standard_normal(size) * self.steps).astype(np.int64)


noise_drawn_anew = wrapped(Noise, "exact", lambda right: _generator_made_anew)
"""Noise of devices comes from a generator that is made anew for every update."""


@pytest.mark.parametrize(("plant", "name"), [(scaled(0.7), "noise"), (noise_drawn_anew, "secret")])
def test_faults_of_real_noise_on_a_sum_are_found(plant: Plant, name: str, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert name in violated(RealSumChannel(planned("central"), SPECS))


upload_clips_without_tables = wrapped(
    Change, "norm", lambda right: lambda self, order: right(replace(self, rows={}), order)
)
upload_noises_what_changed = wrapped(
    outgoing, "_noised", lambda right: lambda terms, v: np.where(v != 0, right(terms, v), 0).astype(np.int32)
)
diverged_upload_is_bare = wrapped(
    outgoing, "_noised", lambda right: lambda terms, v: right(terms, v) if v.any() else np.zeros(len(v), np.int32)
)


def upload_says_how_it_went(patch: Patch) -> None:
    """The number of steps stands in an update again."""
    right = outgoing.make

    def make(*args: Any, **rest: Any) -> Any:
        update, record = right(*args, **rest)
        facts = {"schema": outgoing.SCHEMA, "bundle": update.bundle, "round": update.round, "steps": record.steps}
        patch.setattr(type(update), "facts", lambda self: facts)
        return update, record

    patch.setattr(ways, "make", make)


UPLOADS: list[tuple[dict[str, Any], Plant, str]] = [
    (GAUSSIAN, scaled(0.5), "noise"),
    (LAPLACE, scaled(0.7), "noise"),
    (GAUSSIAN, upload_clips_without_tables, "clip"),
    (LAPLACE, upload_clips_without_tables, "clip"),
    (GAUSSIAN, upload_noises_what_changed, "noise"),
    (GAUSSIAN, diverged_upload_is_bare, "diverged"),
    (GAUSSIAN, noise_drawn_anew, "clients"),
    (GAUSSIAN, noise_drawn_anew, "rounds"),
]


@pytest.mark.parametrize(("settings", "plant", "name"), _named(UPLOADS))
def test_faults_of_a_device_are_found(settings: dict[str, Any], plant: Plant, name: str, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert name in violated(upload(planned("local", **settings)))


def test_an_upload_that_tells_how_much_there_was_to_learn_is_found(monkeypatch: Patch) -> None:
    for trust in ("central", "local"):
        assert {one.check: one.ok for one in check([upload(planned(trust))])}["bytes"]
    upload_says_how_it_went(monkeypatch)
    assert not {one.check: one.ok for one in check([upload(planned("local"))])}["bytes"]


def _rows_left_bare(right: Any) -> Any:
    def whole(self: PrivateSteps, mean: Any, like: Any, rows: Any, noise: Any) -> Any:
        noised = right(self, mean, like, rows, noise)
        return noised if rows is None else noised.new_zeros(noised.shape).index_copy(0, rows, noised[rows])

    return whole


def _unclipped(right: Any) -> Any:
    def sums(self: PrivateSteps, records: Any) -> Any:
        self.clip = 1e9
        return right(self, records)

    return sums


every_step_alike = wrapped(
    PrivateSteps,
    "step",
    lambda right: lambda self, tensors, records, noise=None: right(self, tensors, records, PUBLIC.stream(7, "alike")),
)
steps_with_less_noise = wrapped(
    PrivateSteps,
    "__init__",
    lambda right: (
        lambda self, program, phase, clip, sigma, *rest: right(self, program, phase, clip, 0.8 * sigma, *rest)
    ),
)
steps_leave_rows_bare = wrapped(PrivateSteps, "_whole", _rows_left_bare)
steps_do_not_clip = wrapped(PrivateSteps, "_sums", _unclipped)
STEPS: list[tuple[Plant, str]] = [
    (noise_of_the_seed, "secret"),
    (every_step_alike, "steps"),
    (every_step_alike, "noise"),
    (steps_with_less_noise, "noise"),
    (steps_leave_rows_bare, "noise"),
    (steps_do_not_clip, "clip"),
]


OF_STEPS = list(_named(STEPS))


@pytest.mark.parametrize(("plant", "name"), mostly_slow_params(OF_STEPS, OF_STEPS[::3]))
def test_faults_of_steps_are_found(plant: Plant, name: str, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert name in violated(stepping())
