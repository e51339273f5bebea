"""Names of the rows that every run measures beside its model."""

from __future__ import annotations

UNLEARNED = "before any round"
"""The stage of a run's model as it is before round 1: same program, same user encoder, same head."""


UNLEARNED_IN_CONTEXT = "before any round, context"
"""The same, where users' items of another domain than it was learned in are known to it."""


CONTEXT = "context"
"""The stage of the learned model with these items known, and nothing trained on them."""


NOTHING = "none"
"""The mask of a ranking that leaves nothing out."""
