"""A card says of each backend what an experiment has to know; these are the settings of section `engine`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from edgefr.config.validation import Section
from privacy.setting_scope import ReadWith, named_in
from privacy.table import Table


@dataclass(frozen=True)
class BackendKind:
    """A backend has a name; `make(engine)` gets ready who runs the shards, by the experiment's section `engine`.

    `about` says what it is in a line. `one_by_one`: whether it can run clients whose every interaction is protected
    (DP-SGD on the device), which learn one after another in this process.
    """

    name: str
    about: str
    make: Callable[[EngineSection], Any]
    one_by_one: bool = False


BACKENDS: Table[BackendKind] = Table("executor", BackendKind, home="edgefr.engine.backends", group="edgefr.backends")
"""Who can do the clients' work; results do not depend on it."""


WHO_WORKS = ("executor", "workers", "ray_address", "device")
"""Settings of the engine that decide no result, and may be others when a run goes on."""


class EngineSection(Section):
    """This section says how clients are run. `shard_size` decides the order of sums: it belongs to the experiment."""

    executor: Annotated[str, named_in(BACKENDS)] = Field(
        "inline",
        description="inline: vectorised; processes: the same in worker processes; ray: the same on a Ray cluster; "
        "debug: one client at a time",
    )
    workers: Annotated[int, ReadWith("executor", "processes", "ray")] = Field(
        2,
        ge=1,
        le=256,
        description="workers of executor processes, and of ray without a cluster; results do not depend on it",
    )
    ray_address: Annotated[str, ReadWith("executor", "ray")] = Field(
        "local",
        min_length=1,
        max_length=200,
        description="Ray cluster of executor ray: HOST:PORT, auto (the one of this machine) or local (one of its own)",
    )
    shard_size: int | None = Field(
        None, ge=1, description="clients per vectorised call; none: from memory_mb, recorded"
    )
    memory_mb: Annotated[int, ReadWith("shard_size", None)] = Field(
        64, ge=16, description="working memory of a shard, MB: decides shard_size; near the cache is fastest"
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where clients are trained: cpu or cuda")
