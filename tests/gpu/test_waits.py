"""The host waits for a GPU at the end of a round alone, but for replays: every wait is listed here with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from cloud.rule import RULES
from cloud.uploads import Uploads
from edgefr.engine.backends.backend import InProcess
from edgefr.engine.executors import inline
from edgefr.engine.federation import Federation
from tests.contract import programs
from tests.gpu.pretended import GPU, Pretended
from tests.gpu.test_rounds import (
    HOST,
    NOISED,
    ORDERS,
    after,
    after_sessions,
    alike,
    federation,
    fitting,
    of_sessions,
    on,
    remembering,
    there,
)

WAITS: dict[str, tuple[int, str]] = {
    "cloud/host_transfer.py:wait": (1, "norms, who was dropped, and what clients keep, when all shards are under way"),
    "cloud/aggregate.py:check_finite": (1, "a mean that is not finite ends the run with a reason"),
    "cloud/uploads.py:_pieces": (2, "Krum lays uploads side by side in pieces, whose sizes it has to know"),
    "cloud/similarities.py": (4, "similarities of clients are counted on the host: the changes and the table"),
    "cloud/rules/graph.py:answer": (3, "the relations of clients come from the host, whole tables too"),
    "edgefr/engine/tables.py": (13, "what clients keep, and what a server made for each, is kept on the host"),
    "edgefr/engine/transfer.py": (2, "messages are clipped and noised on the host, and answers are kept there"),
    "cloud/prototypes.py": (2, "which prototypes are sound, and whose neighbours are enough, decides what is stored"),
    "cloud/search.py:exact": (2, "equal cosines at the end of a list are ranked again"),
}
"""Where the host waits for a device in a round (a file, or a function of it): at most how often, and what for."""


OFTENER = {
    "edgefr/engine/scoring.py": "replays are drawn on the host, by scores from the device: each shard",
    "edgefr/engine/executors/replay.py": "the same, where it is drawn anew for every step: each step",
}
"""Where it waits more often with more shards, or steps."""


def waits(made: Federation, rounds: Callable[..., Federation], gpu: Pretended) -> Counter[str]:
    """What a round waits for, by its place in the list."""
    rounds(made, 1)
    gpu.waits.clear()
    rounds(made, 1)
    found: Counter[str] = Counter()
    for place, times in gpu.waits.items():
        listed = [name for name in WAITS if place.startswith(name)]
        if not place.startswith("tests/gpu/test_rounds.py"):
            found[listed[0] if listed else place] += times
    return found


def check(make: Callable[[], Federation], rounds: Callable[..., Federation] = after) -> None:
    """Fail where a round waits for what is not listed, more often, or oftener with more shards."""
    found = []
    for shard_size in (2, 9):
        with Pretended() as gpu:
            made = make()
            made.shard_size = shard_size
            found.append(waits(made, rounds, gpu))
    assert found[0] == found[1], "more shards, more waits"
    for place, times in found[0].items():
        assert place in WAITS, f"the host waits for the device at {place}, which is not listed"
        assert times <= WAITS[place][0], f"{place} waits {times} times a round"


@pytest.mark.slow
@pytest.mark.parametrize("variant", programs.VARIANTS)
def test_rounds_of_every_method_wait_for_what_is_listed_alone(variant: str) -> None:
    check(lambda: federation(programs.program(variant, local_epochs=1), GPU))


@pytest.mark.parametrize("rule", list(RULES))
def test_rounds_under_every_rule_wait_for_what_is_listed_alone(rule: str) -> None:
    check(lambda: federation(programs.program(fitting(rule), local_epochs=1), GPU, rule))


@pytest.mark.parametrize(
    "options", [{"clip": 0.05, "norm": "l1"}, NOISED, {**NOISED, "project": 64}, {"keeps": True}], ids=str
)
def test_releases_of_every_kind_wait_for_what_is_listed_alone(options: dict[str, Any]) -> None:
    check(lambda: federation(programs.program("fedncf", local_epochs=1), GPU, **options))


@pytest.mark.parametrize("variant", ORDERS)
def test_rounds_that_exchange_prototypes_wait_for_what_is_listed_alone(variant: str) -> None:
    check(lambda: of_sessions(variant, ORDERS[variant], GPU), after_sessions)


@pytest.mark.parametrize("each_step", [False, True])
def test_replays_alone_wait_in_a_shard_and_for_the_scores_that_they_are_drawn_by(each_step: bool) -> None:
    with Pretended() as gpu:
        todo, private = remembering("fedncf", each_step)
        shared = on(GPU, programs.doubled(todo.program.init_shared(3)))
        gpu.waits.clear()
        inline.run(there(todo, GPU), shared, private, np.arange(programs.CLIENTS))
    assert gpu.waits
    assert {place.split(":")[0] for place in gpu.waits} == {list(OFTENER)[each_step]}


def test_a_client_that_is_dropped_is_waited_for_by_nobody() -> None:
    """Its values are left out of a robust rule's uploads when the round's one wait has told of it."""

    def broken(work: Any, shared: Any, private: Any, clients: np.ndarray) -> Any:
        updates = inline.run(work, shared, private, clients)
        updates.rows["item"].values.mul_(torch.where(updates.rows["item"].client.unsqueeze(1) == 1, torch.nan, 1.0))
        return updates

    def make(device: torch.device = GPU) -> Federation:
        made = federation(programs.program("fedmf", local_epochs=1), device, "median")
        made.backend = InProcess(broken)
        return made

    check(make)
    with Pretended():
        found, expected = after(make()), after(make(HOST))
        alike(found, expected)
    assert expected.counters.dropped > 4


def test_a_planted_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    combine = RULES["median"].combine  # type: ignore[attr-defined]

    def reading(settings: Any, uploads: Uploads, shared: Any) -> Any:
        uploads.rows["item"][2].max().item()
        return combine(settings, uploads, shared)

    monkeypatch.setattr(RULES["median"], "combine", reading, raising=False)
    with pytest.raises(AssertionError, match=r"test_waits.py:reading: _local_scalar_dense, which is not listed"):
        check(lambda: federation(programs.program("fedmf", local_epochs=1), GPU, "median"))
