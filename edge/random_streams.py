"""These strings key the random draws that a device and its simulation share; a later renaming may not touch them.

Every random number is a function of (seed, one of these, round, client, ...), so another string is another result.
Phases and tensors are named in some of them; a phase says itself what keys its draws.
"""

REPLAY = "replay"
RECEIVED_NOISE = "received noise"
SUPPORT = "support"
MADE_ANEW = "private tensors made anew"


def negatives(phase: str) -> str:
    """Return what keys the negatives of a phase's examples.

    >>> negatives("federated")
    'federated negatives'
    """
    return f"{phase} negatives"


def order(phase: str) -> str:
    """Return what keys the order of a phase's examples.

    >>> order("federated")
    'federated order'
    """
    return f"{phase} order"
