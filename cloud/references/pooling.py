"""Everybody's training interactions in one place, and the keyed draws that a central reference makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cloud import random_streams as purposes
from privacy import keyed
from privacy.errors import InputError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pooled:
    """These are the training interactions of all users: `user`, `item` int64 [n], of so many `users` and `items`.

    `pool`: items that may be negatives. `seed` keys the draws; those of a second domain have its name beside them, so
    that what is learned there starts elsewhere.
    """

    user: Ints
    item: Ints
    users: int
    items: int
    pool: Ints
    seed: int
    domain: str = ""

    def named(self, purpose: str) -> str:
        """Return what keys draws for a purpose in this domain."""
        return f"{purpose} {self.domain}".rstrip()

    @cached_property
    def codes(self) -> Ints:
        """Return every (user, item) pair as one number, ascending."""
        return np.unique(self.user * self.items + self.item)

    def has(self, user: Ints, item: Ints) -> npt.NDArray[np.bool_]:
        """Tell which pairs are among the interactions."""
        code = user * self.items + item
        return self.codes[np.minimum(np.searchsorted(self.codes, code), len(self.codes) - 1)] == code

    def negatives(self, epoch: int, each: int) -> Ints:
        """Draw `each` items for every interaction that its user does not have, int64 [n, each], anew in every epoch.

        Raises `InputError` where a user has every item of the pool.
        """
        most = int(np.bincount(self.user, minlength=1).max(initial=0))
        if each and most >= len(self.pool):
            raise InputError(
                f"a user has {most} positives of {len(self.pool)} items, so no negative can be drawn for it; use a "
                "larger catalogue"
            )
        key, user = keyed.key(self.seed, self.named(purposes.REFERENCE_NEGATIVES), epoch), np.repeat(self.user, each)
        index = np.arange(len(user))
        drawn = self.pool[keyed.integers(key, index, len(self.pool))]
        again, attempt = np.flatnonzero(self.has(user, drawn)), 0
        while len(again):
            attempt += 1
            further = keyed.bits(key, np.uint64(attempt) << np.uint64(32))
            drawn[again] = self.pool[keyed.integers(further, index[again], len(self.pool))]
            again = again[self.has(user[again], drawn[again])]
        return drawn.reshape(len(self.user), each)

    def batches(self, epoch: int, negatives: int, size: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield an epoch's batches of `size` interactions: users [b], and items [b, 1 + negatives], positives first."""
        key = keyed.key(self.seed, self.named(purposes.REFERENCE_ORDER), epoch)
        order = np.argsort(keyed.fold(key, np.arange(len(self.user))))
        items = np.concatenate([self.item[:, None], self.negatives(epoch, negatives)], axis=1)
        for at in range(0, len(order), size):
            some = order[at : at + size]
            yield self.user[some], items[some]
