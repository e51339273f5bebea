"""Bundles of every shippable method of the table, and the devices that hold them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

import torch

from edge.learning import ReleaseRecord, ReplayRecord
from edge.manifest import Promise
from edge.policy import NOISED
from edgefr.engine.optimisers import adam, sgd
from edgefr.experiment.method import METHODS
from edgefr.simulation.bundles import promise_of
from export.bundle import Provenance, Targets, export_bundles
from export.learning import LearningSpec, unlearnable
from export.model import Names, TrainedModel
from export.program import LocalProgram
from export.variants import ClassLimits
from privacy.plan import plan
from privacy.settings import PrivacySettings
from tests.contract.programs import CLIENTS, ITEMS, VARIANTS, interactions, program
from tests.export import worlds

SHIPPED = [
    variant
    for variant, (name, _) in VARIANTS.items()
    if not variant.startswith("anchored")
    and not METHODS[name].own_rows  # bundles hold no rows of a client's own
    and unlearnable(program(variant)) is None
]
ROOT = Path(__file__).resolve().parents[2]
CLASS, ROUND, SEED = "laptop", 2, 3
PLAIN = ReleaseRecord(clip=None, norm="l2", noise=None, scale=0.0, weights="uniform")
REPLAY = ReplayRecord(picks="adaptive", list_size=8, shift_scale=0.006, weight=0.5, reduction="mean")
LEARNING = LearningSpec(
    optimisers={"sgd": sgd, "adam": adam}, negatives=3, batch_size=16, seed=5, round=ROUND - 1, release=PLAIN
)


def user(client: int) -> str:
    return f"u{client}"


USERS = {client: user(client) for client in range(CLIENTS)}
"""Whom a server knows their devices by."""


def fresh() -> Path:
    """A temporary folder that goes away with the process."""
    path = Path(tempfile.mkdtemp(prefix="device-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def promising(variant: str, epsilon: float, rounds: int, trust: Literal["local", "central"] = "local") -> Path:
    """The same bundle of a run with Gaussian noise of this epsilon over so many rounds, as it says.

    The devices add it, or under central trust the server, which opens sums of everybody.
    """
    settings = PrivacySettings(mechanism="gaussian", trust=trust, clip=1.0, epsilon=epsilon)
    if trust == "central":
        settings = settings.model_copy(update={"at_least": CLIENTS})
    resolved = plan(settings, rounds, CLIENTS, CLIENTS)
    noise, promise = resolved.noise, promise_of(resolved, settings)
    assert noise is not None
    terms = {"clip": 1.0, "noise": noise.kind, "scale": noise.scale, "step": noise.step, "noised": NOISED[trust]}
    return bundle(variant, promise=promise, **terms)


@cache
def bundle(variant: str, replay: bool = False, promise: Promise | None = None, **release: object) -> Path:
    """The bundle of untrained tensors, whose devices draw as `programs.work` does; it carries users. Read only."""
    out = fresh()
    learning = replace(LEARNING, release=PLAIN.model_copy(update=dict(release)), replay=REPLAY if replay else None)
    write(out, program(variant), learning, promise)
    return out / CLASS


def named(users: int, items: int) -> Names:
    return Names([user(n) for n in range(users)], [f"i{n}" for n in range(items)], [f"item {n}" for n in range(items)])


def write(
    out: Path,
    local: LocalProgram,
    learning: LearningSpec,
    promise: Promise | None = None,
    private: dict[str, torch.Tensor] | None = None,
    with_users: bool = True,
) -> None:
    """Write the bundle of a program's untrained tensors; `private`: everybody's own (None: first values)."""
    train, own = interactions(), local.init_private(SEED, torch.arange(CLIENTS)) if private is None else private
    history = train if local.needs_history else None
    model = TrainedModel(local, local.init_shared(SEED), own, named(CLIENTS, ITEMS), train, history=history)
    ship(out, model, learning, promise, with_users)


def ship(
    out: Path,
    model: TrainedModel,
    learning: LearningSpec | None = None,
    promise: Promise | None = None,
    with_users: bool = True,
) -> Path:
    """Write the signed bundle of a model that one class gets, all users its own; where it lies."""
    everyone = list(range(len(model.names.users)))
    targets = Targets({CLASS: ClassLimits(8000, 20)}, {CLASS: everyone}, with_users)
    origin = Provenance(worlds.CREATED, expires_days=None, promise=promise)
    export_bundles(out, model, targets, origin, learning=learning, key=worlds.KEY)
    return out / CLASS
