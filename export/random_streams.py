"""These strings key the random inputs that exported graphs are checked on; a later renaming may not touch them.

Every random number is a function of (seed, one of these, ...), so another string is another check.
"""

REHEARSAL = "rehearsal"
QUALITY_USERS, QUALITY_ITEMS, QUALITY_NEGATIVES = "quality users", "quality items", "quality negatives"
ENCODER_GATE = "encoder gate"


def graph_gate(tensor: str) -> str:
    """Return what keys a tensor of a scoring graph's check."""
    return f"graph gate {tensor}"


def rehearsal(tensor: str) -> str:
    """Return what keys a tensor of a session step's check."""
    return f"rehearsal {tensor}"
