"""A block of a round's shards is trained in another process, on this machine or another: its input and its work."""

from __future__ import annotations

import traceback
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from edge.ragged import Ragged
from edgefr.engine.aggregate import ReleaseTerms, ShardAggregate, summed
from edgefr.engine.backends.backend import Backend, blocks
from edgefr.engine.compiled import dispatch as formed
from edgefr.engine.executors import inline
from edgefr.engine.work import Clients, LocalWork, Memory, OwnTable, Updates
from export.program import LocalProgram, Phase, Tensors
from privacy.errors import InputError


class SharedWork(NamedTuple):
    """This is what many rounds have in common."""

    program: LocalProgram
    sampler: Any
    context: Ragged
    memory: Memory | None

    @classmethod
    def of(cls, work: LocalWork, before: SharedWork | None) -> tuple[SharedWork, bool]:
        """Return the setting of a round's work, and whether it is another than that of the round before."""
        now = cls(work.program, work.sampler, work.context, work.memory)
        same = before is not None and all(new is old for new, old in zip(now, before, strict=True))
        return now, not same


class Round(NamedTuple):
    """This is what a round's blocks have in common; `terms` None: nothing is released, updates come back themselves."""

    phases: Sequence[Phase]
    number: int
    terms: ReleaseTerms | None
    shared: Tensors
    tables: Mapping[str, OwnTable]

    @classmethod
    def of(cls, work: LocalWork, terms: ReleaseTerms | None, shared: Tensors) -> Round:
        return cls(tuple(work.phases), work.round, terms, dict(shared), dict(work.tables))

    def work(self, setting: SharedWork) -> LocalWork:
        program, sampler, context, memory = setting
        host = torch.device("cpu")
        return LocalWork(program, self.phases, sampler, context, self.number, host, memory, self.tables)


class Elsewhere(Backend):
    """This backend sends blocks of shards to other processes; `run` says how, and starts them."""

    name = ""

    def releases(
        self, work: LocalWork, terms: ReleaseTerms, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[ShardAggregate]:
        return self._run(work, terms, shared, private, shards)

    def updates(
        self, work: LocalWork, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[Updates]:
        return self._run(work, None, shared, private, shards)

    def _run(
        self, work: LocalWork, terms: ReleaseTerms | None, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[Any]:
        if work.device.type != "cpu":
            raise InputError(f"executor {self.name} trains on the CPU, not on {work.device}; set engine.device=cpu")
        if shards:
            self.start()
            yield from self.run(work, terms, shared, private, shards)

    @abstractmethod
    def run(
        self, work: LocalWork, terms: ReleaseTerms | None, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[Any]: ...


def cut(terms: ReleaseTerms | None, shards: int) -> list[range]:
    """Cut a round's shards into what is sent at a time: blocks, or shards where sums of blocks are not enough."""
    return blocks(shards) if terms is not None and terms.in_blocks else [range(at, at + 1) for at in range(shards)]


def trained(setting: SharedWork, round_: Round, block: Sequence[tuple[Clients, Tensors]]) -> ShardAggregate | Updates:
    """Train a block of shards, each its clients and their private tensors [C, ...]; return what leaves it."""
    work = round_.work(setting)
    if round_.terms is None:
        ((clients, private),) = block
        return inline.run(work, round_.shared, private, clients)
    parts = [formed.released(work, round_.terms, round_.shared, private, clients) for clients, private in block]
    return summed(parts, [len(clients) for clients, _ in block])


def answer(result: Any) -> tuple[str, Any]:
    try:
        return "done", result()
    except InputError as error:
        return "wrong input", str(error)
    except Exception:
        return "failed", traceback.format_exc()
