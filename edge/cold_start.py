"""A user without history is shown the bundle's own list, or none; every list says what it is ranked by.

A model knows nothing of a user without history: scores that are all the same, or that follow from first values that
were drawn, order nothing and are not shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from edge.bundle import Bundle
from edge.catalogue import load_array, top
from edge.manifest import StartBasis
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Listed = tuple[str, str, float]
Basis = Literal["model", StartBasis, "none"]

NEW, ALIKE = "this device has no history", "the model does not tell items apart for this user"
SAID: dict[Basis, str] = {
    "popular": "popular",
    "mean": "the model's order for nobody in particular",
    "none": "no ranking yet",
}


@dataclass(frozen=True)
class StartList:
    """These are items for somebody without history, best first, and the `basis` of their order."""

    basis: StartBasis
    items: Ints

    @classmethod
    def of(cls, bundle: Bundle) -> StartList | None:
        """Read a bundle's; None where it has none. Raises `InputError` for items that it has not, or has twice."""
        record = bundle.config.start
        if record is None:
            return None
        items = load_array(bundle, record.path, np.int32, (record.count,)).astype(np.int64)
        if len(np.unique(items)) < len(items) or items.min() < 0 or items.max() >= bundle.manifest.item_count:
            raise InputError(f"bundle {bundle.root}: {record.path} names items twice or unknown ones; export again")
        return cls(record.basis, items)


class Recommendations(list[Listed]):
    """Items are listed as (id, title, score), best first; `basis` says what they are ranked by.

    model: the user's own scores. popular: how many people had them; mean: the model, of nobody in particular; both
    without scores (NaN). none: there is no ranking yet. `why` says why it is not the user's own scores.
    """

    def __init__(self, basis: Basis, items: Iterable[Listed], why: str = ""):
        super().__init__(items)
        self.basis, self.why = basis, why

    def __repr__(self) -> str:
        return super().__repr__() if self.basis == "model" else f"<{self.said}: {super().__repr__()}>"

    @property
    def said(self) -> str:
        """Return the basis in words; nothing where it is the user's own scores."""
        return "" if self.basis == "model" else f"{SAID[self.basis]}, since {self.why}"


def ranked(
    left: Ints,
    k: int,
    scores: Floats | None,
    start: Callable[[], StartList | None],
    named: Callable[[int, float], Listed],
) -> Recommendations:
    """Return the k best of the items that are `left`, ascending numbers, by a user's `scores` [items], ties by number.

    `scores` are None for a user who has had nothing. Then, and where all are the same, those of the `start` list.
    """
    if scores is not None and (len(left) == 1 or np.ptp(scores[left]) > 0):
        best = left[top(scores[left], k)].tolist()
        return Recommendations("model", [named(item, float(scores[item])) for item in best])
    first, why = start(), NEW if scores is None else ALIKE
    found = [] if first is None else first.items[np.isin(first.items, left)][:k].tolist()
    basis: Basis = first.basis if first is not None and found else "none"
    return Recommendations(basis, [named(item, math.nan) for item in found], why)
