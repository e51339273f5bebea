"""A bundle is made of a case, and devices that hold it learn and recommend: what was simulated is what is shipped.

Owns: that comparison. Does not own: tracing and its gate (`export.steps`), devices (`edge`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge.device import Device
from edge.learning import ReleaseRecord
from edge.policy import OPEN
from edge.recommender import Recommender
from edgefr.engine.executors import inline
from edgefr.engine.optimisers import RULES
from edgefr.methods.testing.cases import NEGATIVES, ROUND, SEED, Case, SessionCase, SetCase
from edgefr.methods.testing.closeness import after_training, assert_same
from export.bundle import Provenance, Targets, export_bundles
from export.learning import LearningSpec, unlearnable
from export.model import Names, TrainedModel
from export.parity import Reference
from export.variants import ClassLimits

CLASS, BATCH = "laptop", 16
PLAIN = ReleaseRecord(clip=None, norm="l2", noise=None, scale=0.0, weights="uniform")


@dataclass
class Shipment:
    """A shipment is a model, and the folder of its bundle and its devices, which goes away with it."""

    model: TrainedModel
    folder: TemporaryDirectory[str]

    @property
    def bundle(self) -> Path:
        return Path(self.folder.name) / "bundles" / CLASS

    def device(self, client: int) -> Device:
        return Device(self.bundle, Path(self.folder.name) / f"device-{client}", user=f"u{client}", policy=OPEN)


@cache
def shipment(case: Case) -> Shipment:
    """Return the shipment of a case, made when it is first asked for; its devices draw as the case's clients do."""
    made = Shipment(model_of(case), TemporaryDirectory(prefix="edgefr-check-"))
    optimisers = {name: rule.step for name, rule in RULES.items()}
    learning = LearningSpec(optimisers, NEGATIVES, BATCH, SEED, ROUND - 1, PLAIN)
    export_bundles(
        made.bundle.parent,
        made.model,
        Targets({CLASS: ClassLimits(8000, 20)}, {CLASS: case.clients.tolist()}, with_users=True),
        Provenance("2026-01-01T00:00:00+00:00"),
        learning=None if unlearnable(case.program) else learning,
        key=Ed25519PrivateKey.generate(),
    )
    return made


def model_of(case: Case) -> TrainedModel:
    """Return the case's first values as a model to ship."""
    shared, private = case.begun(case.clients, wide=False)
    names = Names([f"u{n}" for n in case.clients], *([f"i{n}" for n in range(case.items)] for _ in range(2)))
    history, times = case.sessions() if isinstance(case, SessionCase) else (cast(SetCase, case).train(), None)
    seen = case.seen() if isinstance(case, SessionCase) else history
    read = history if case.program.needs_history or times is not None else None
    pool = list(range(case.shown))
    return TrainedModel(case.program, shared, private, names, seen, history=read, times=times, pool=pool)


def why_not(case: Case) -> str | None:
    """Say why no bundle can be made of the program; None where one can."""
    if any(spec.kind == "rows" and spec.place != "shared" for spec in case.program.specs.values()):
        return "it has item rows of each client's own, which no bundle holds"
    return None


def learners(case: Case) -> list[int]:
    everyone = [int(client) for client in case.clients if not isinstance(case, SetCase) or client != case.idle]
    return [everyone[0], everyone[len(everyone) // 3], case.busiest]


def bundle(case: Case) -> str | None:
    """Ask whether a bundle can be made, whose steps train as torch's and whose scores are torch's."""
    if (refused := why_not(case)) is not None:
        return refused
    made = shipment(case)
    reference = Reference(made.model)
    recommender = Recommender(made.bundle)
    for client in learners(case):
        assert_same(recommender.scores(f"u{client}"), torch.from_numpy(reference.scores(client)), name="scores")
    return None


def device(case: Case) -> str | None:
    """Ask whether a device learns what the simulator's client does."""
    if (refused := why_not(case) or unlearnable(case.program)) is not None:
        return refused
    some, made = np.array(learners(case)), shipment(case)
    shared, private = case.begun(some, wide=False)
    todo = case.work(batch=BATCH)
    expected = case.outcome(todo, inline.run(todo, shared, private, some), some)
    for slot, client in enumerate(some.tolist()):
        one = made.device(client)
        release = one.learn(case.train()[client]) if isinstance(case, SetCase) else one.learn()
        allowed: dict[str, Any] = after_training(todo.phases, one.work["steps"], shared, private)
        found = learned(case, release, one.state.part("private"))
        assert_same_together(found, {name: value[slot] for name, value in expected.items()}, allowed)
    return None


def assert_same_together(
    found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], allowed: Mapping[str, Any]
) -> None:
    """Fail unless all tensors of a client agree; float32 Adam may stray in a small share of values.

    Tensors of fewer than a hundred values are pooled with the others for that.
    """
    for name, value in expected.items():
        assert found[name].shape == value.shape, f"{name}: {tuple(found[name].shape)} instead of {tuple(value.shape)}"
    try:
        assert_same(*(torch.cat([part[name].flatten() for name in expected]) for part in (found, expected)), **allowed)
    except AssertionError:
        for name, value in expected.items():
            assert_same(found[name], value, name=name, **allowed)  # which it is
        raise


def learned(case: Case, release: Any, private: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    out = {f"private {name}": torch.from_numpy(value) for name, value in private.items()}
    at, flat = 0, torch.from_numpy(release.update)
    changed = {name for phase in case.program.phases if phase.when == "round" for name in phase.trains}
    for name, spec in case.program.specs.items():
        if name not in changed or spec.place != "shared":
            continue
        if spec.kind == "dense":
            out[name], at = flat[at : at + spec.size].view(spec.shape), at + spec.size
        else:
            out[name] = torch.zeros(case.shown, spec.shape[1])
            items, values = release.rows[name]
            out[name][torch.from_numpy(items.astype(np.int64))] = torch.from_numpy(values)
    return out if release.prototype is None else {**out, "message": torch.from_numpy(release.prototype)}
