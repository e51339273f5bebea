"""A backend is who does the clients' work of a round, one registered object each (`engine.executor` names it)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privacy.table import Table

if TYPE_CHECKING:
    from edgefr.engine.backend import Backend
    from edgefr.sections import EngineSection


@dataclass(frozen=True)
class BackendKind:
    """A backend has a name; `make(engine)` gets ready who runs the shards, by the experiment's section `engine`.

    `about` says what it is in a line. `one_by_one`: whether it can run clients whose every interaction is protected
    (DP-SGD on the device), which learn one after another in this process.
    """

    name: str
    about: str
    make: Callable[[EngineSection], Backend]
    one_by_one: bool = False


def _inline(engine: EngineSection) -> Backend:
    from edgefr.engine.backend import Inline

    return Inline()


def _debug(engine: EngineSection) -> Backend:
    from edgefr.engine import debug
    from edgefr.engine.backend import InProcess

    return InProcess(debug.run)


def _workers(engine: EngineSection) -> Backend:
    from edgefr.engine.processes import Workers

    return Workers(engine.workers)


def _ray(engine: EngineSection) -> Backend:
    from edgefr.engine.on_ray import OnRay

    return OnRay(engine.ray_address, engine.workers)


BACKENDS: Table[BackendKind] = Table("executor", BackendKind, group="edgefr.backends")
"""Who can do the clients' work; results do not depend on it."""

BACKENDS.register(BackendKind("inline", "vectorised, or compiled", _inline, one_by_one=True))
BACKENDS.register(BackendKind("processes", "the same in worker processes", _workers))
BACKENDS.register(BackendKind("ray", "the same on the nodes of a Ray cluster", _ray))
BACKENDS.register(BackendKind("debug", "one client at a time", _debug, one_by_one=True))
