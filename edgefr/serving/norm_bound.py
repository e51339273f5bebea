"""An honest upload is bounded by its clip and its device's noise, beyond reasonable doubt.

Under local trust the server sees a clipped vector under noise and cannot clip it; a longer one would move the sum at
will. So uploads beyond the clip and a quantile of the noise are refused, in norm or any value: an honest one passes but
for a chance of 2e-12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edge.learning import Learning
from edge.update import ClientUpdate
from privacy.mechanism import Tail, law_of

DOUBT = 1e-12
"""Chance that an honest upload's noise is longer than taken, and again that one value of it is."""


@dataclass(frozen=True)
class Reach:
    """This bounds uploads in grid steps: `clip` in the norm of `tail`, and the noise's own bounds."""

    clip: float
    tail: Tail

    @classmethod
    def of(cls, learning: Learning) -> Reach | None:
        """Return the bound for a bundle's devices; None where they add no noise, or one of an unknown tail."""
        terms = learning.release
        if terms.own_noise is None or terms.clip is None or terms.step is None:
            return None
        tail = law_of(terms.own_noise.kind).tail(terms.own_noise.steps, learning.uploaded, DOUBT)
        if tail is None:
            return None
        widens = math.sqrt(learning.uploaded) if (terms.norm, tail.norm) == ("l2", "l1") else 1.0
        return cls(terms.clip / terms.step * widens, tail)

    def holds(self, upload: ClientUpdate) -> bool:
        """Say whether an honest device may send the upload."""
        steps = upload.update.astype(np.float64)
        length = float(np.linalg.norm(steps, {"l1": 1, "l2": 2}[self.tail.norm]))
        widest = float(np.abs(steps).max(initial=0.0))
        return length <= self.clip + self.tail.length and widest <= self.clip + self.tail.value
