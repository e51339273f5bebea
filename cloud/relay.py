"""The server relays clients' messages: after a round everybody has what one other in it sent, unsaid whose.

Who gets whose is a cycle through the round's clients in an order that only the server can know. So nobody gets the own
message, every message goes to one client and no further, and each is one release to the server and one recipient. Of
two clients each knows whose it has; a single one gets nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def senders(draws: npt.NDArray[np.uint64]) -> Ints:
    """Return whose message each client of a round gets, as places [C]; nobody's where there is only one client.

    `draws` [C]: secret random numbers, one for each client. Clients in the order of these sit in a circle, and each
    gets the message of who sits before it.

    >>> senders(np.array([30, 10, 20], np.uint64)).tolist(), senders(np.array([7], np.uint64)).tolist()
    ([2, 0, 1], [])
    """
    if len(draws) < 2:
        return np.empty(0, np.int64)
    circle = np.argsort(draws, kind="stable")
    out = np.empty(len(draws), np.int64)
    out[circle] = np.roll(circle, 1)
    return out
