"""Phases of local work come in order, and some take turns step by step: the engine and devices group them here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from edge.sampling import Selection


class Turn(Protocol):
    """This is what a phase says of the steps it takes, whether a program has it or a bundle."""

    @property
    def name(self) -> str: ...

    @property
    def purpose(self) -> str: ...

    @property
    def epochs(self) -> int: ...

    @property
    def when(self) -> str: ...

    @property
    def which(self) -> Selection: ...

    @property
    def alternates(self) -> bool: ...


P = TypeVar("P", bound=Turn)


def turns(phases: Iterable[P]) -> list[list[P]]:
    """Phases in order, those that take turns step by step together.

    Raises `ValueError` for a phase that alternates with one of other draws, epochs or time.
    """
    out: list[list[P]] = []
    for phase in phases:
        if not phase.alternates:
            out.append([phase])
            continue
        if not out or any(
            (p.purpose, p.epochs, p.when, p.which) != (phase.purpose, phase.epochs, phase.when, phase.which)
            for p in out[-1]
        ):
            raise ValueError(f"phase '{phase.name}' alternates, but not with a phase of the same draws and epochs")
        out[-1].append(phase)
    return out
