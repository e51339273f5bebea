"""A backend runs the shards of a round: here this process does, shard after shard."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from edgefr.engine.aggregate import Leaving, ReleaseTerms, ShardAggregate, leaving
from edgefr.engine.compiled import dispatch as formed
from edgefr.engine.executors import inline
from edgefr.engine.work import MEMORY, Clients, Executor, LocalWork, Updates
from export.program import ScoreForm, Tensors, read_by

BLOCK, BLOCKS = 16, 16
"""A round's shards are cut into blocks of at most `BLOCK` shards, into `BLOCKS` of them if it can be."""


def blocks(shards: int) -> list[range]:
    """Cut a round's shards into blocks of consecutive ones, independent of the number of workers.

    A block is summed before it is added to the blocks before it, so this fixes the order of sums and the last bits.

    >>> [len(block) for block in blocks(3)], [len(block) for block in blocks(33)][:3], len(blocks(1000))
    ([1, 1, 1], [3, 3, 3], 63)
    """
    size = min(BLOCK, max(1, -(-shards // BLOCKS)))
    return [range(first, min(first + size, shards)) for first in range(0, shards, size)]


class Backend(ABC):
    """A backend runs shards and yields their releases in the shards' order."""

    def start(self) -> None:  # noqa: B027 - most are ready
        """Prepare workers; a backend that was not started starts itself."""

    @abstractmethod
    def releases(
        self, work: LocalWork, terms: ReleaseTerms, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[ShardAggregate | Leaving]:
        """Yield the shards' releases in order, of single shards or of whole blocks.

        `private` are the tensors of all clients, on the host. Sums of rows are valid until the next release is asked
        for; a device may still compute a release.
        """

    @abstractmethod
    def updates(
        self, work: LocalWork, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[Updates]:
        """Yield the updates themselves (local training: nothing is released)."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """End workers, if there are any."""


class InProcess(Backend):
    """This backend runs every shard in this process with `executor`."""

    def __init__(self, executor: Executor):
        self.executor = executor

    def releases(
        self, work: LocalWork, terms: ReleaseTerms, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[ShardAggregate | Leaving]:
        for shard, updates in zip(shards, self.updates(work, shared, private, shards), strict=True):
            yield leaving(updates, work.sampler.train.counts[shard], terms)

    def updates(
        self, work: LocalWork, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[Updates]:
        for shard in shards:
            yield self.executor(work, shared, own(work, private, shard), shard)


class Inline(InProcess):
    """This backend runs every shard in this process: compiled where its program has a form, else vectorised."""

    def __init__(self) -> None:
        super().__init__(inline.run)

    def releases(
        self, work: LocalWork, terms: ReleaseTerms, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[ShardAggregate | Leaving]:
        if work.device.type != "cpu":
            yield from super().releases(work, terms, shared, private, shards)
            return
        for some in _calls(work, terms, shards):
            found = None
            if len(some) > 1:
                found = formed.together(work, terms, shared, own(work, private, np.concatenate(some)), some)
            if found is not None:
                yield found
                continue
            for shard in some:
                yield formed.released(work, terms, shared, own(work, private, shard), shard)


def _calls(work: LocalWork, terms: ReleaseTerms, shards: Sequence[Clients]) -> Iterator[Sequence[Clients]]:
    """Yield the shards that one call can train and sum as they would be summed by themselves.

    Where every block is one shard these are all, else those of a block. A clip is told of shard by shard.
    """
    together = isinstance(formed.declared(work.program), ScoreForm) and terms.in_blocks
    if not together or terms.clip is not None or work.memory is not None:
        yield from ([shard] for shard in shards)
    elif len(shards) <= BLOCKS:
        yield shards
    else:
        yield from (shards[block.start : block.stop] for block in blocks(len(shards)))


def own(work: LocalWork, private: Tensors, shard: Clients) -> dict[str, torch.Tensor]:
    """Return what the work reads of the private tensors of a shard's clients, memory included."""
    used, index = read_by(work.phases), torch.from_numpy(shard)
    read = [n for n in private if n in used or (work.memory is not None and n.startswith(MEMORY))]
    return {name: private[name].index_select(0, index) for name in read}
