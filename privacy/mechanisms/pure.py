"""This is any mechanism of which all that is claimed is a pure epsilon, such as PrivUnitG's (`privacy.privunit`)."""

import math

import numpy as np

from privacy.guarantee import Event
from privacy.mechanism import ORDERS, Floats, Mechanism, divergences


class Pure(Mechanism):
    """This is a pure epsilon, 1 / multiplier."""

    name = "pure"
    settings = None
    trusts = ("central", "local")
    guarantees = True
    unknown = "all but its pure epsilon"
    citation = "Kairouz, Oh & Viswanath 2015"

    def curve(self, event: Event) -> Floats:
        """Randomised response is the worst of all mechanisms with a pure epsilon (Kairouz, Oh & Viswanath 2015)."""
        epsilon = 1.0 / event.multiplier
        kept = -math.log1p(math.exp(-epsilon))  # log of the probability of the truth
        log_sum = np.logaddexp(kept + (ORDERS - 1.0) * epsilon, kept - ORDERS * epsilon)
        return divergences(log_sum)

    def pure(self, event: Event) -> float:
        return 1.0 / event.multiplier
