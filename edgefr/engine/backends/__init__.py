"""A backend works on shards: in this process, in workers, on Ray, or on real devices.

Owns: which backends ship (`engine.executor` names them), the contract and its transport. Does not own: what a shard
computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefr.config.executors import BACKENDS, BackendKind

if TYPE_CHECKING:
    from edgefr.config.executors import EngineSection
    from edgefr.engine.backends.backend import Backend


def _inline(engine: EngineSection) -> Backend:
    from edgefr.engine.backends.backend import Inline

    return Inline()


def _debug(engine: EngineSection) -> Backend:
    from edgefr.engine.backends.backend import InProcess
    from edgefr.engine.executors import debug

    return InProcess(debug.run)


def _workers(engine: EngineSection) -> Backend:
    from edgefr.engine.backends.processes import Workers

    return Workers(engine.workers)


def _ray(engine: EngineSection) -> Backend:
    from edgefr.engine.backends.ray import OnRay

    return OnRay(engine.ray_address, engine.workers)


BACKENDS.register(BackendKind("inline", "vectorised, or compiled", _inline, one_by_one=True))
BACKENDS.register(BackendKind("processes", "the same in worker processes", _workers))
BACKENDS.register(BackendKind("ray", "the same on the nodes of a Ray cluster", _ray))
BACKENDS.register(BackendKind("debug", "one client at a time", _debug, one_by_one=True))
