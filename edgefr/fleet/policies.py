"""A round policy says whom the server waits for before it makes an aggregate: one registered object each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from privacy.table import Table


@dataclass(frozen=True)
class Policy:
    """A round policy has a name; `about` says in a report how its rounds end.

    `waits`: a round invites one cohort together (`clock.Fleet.round`); else clients work at any time and a round ends
    with a full buffer (`fedbuff.Buffered`). `enough(wanted)`: uploads that close a waiting round before its deadline
    (None: it waits for all).
    """

    name: str
    about: str
    waits: bool
    enough: Callable[[int], int | None]


POLICIES: Table[Policy] = Table("round policy", Policy, group="edgefr.policies")
"""Whom a server can wait for."""

POLICIES.register(Policy("deadline", "each to its deadline", waits=True, enough=lambda wanted: None))
POLICIES.register(
    Policy("first_k", "each to the first uploads wanted", waits=True, enough=lambda wanted: max(wanted, 1))
)
POLICIES.register(
    Policy(
        "async", "each to a full buffer of uploads, whatever they started from", waits=False, enough=lambda wanted: None
    )
)
