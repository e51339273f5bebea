"""A small log of visits in RetailRocket's layout: users whose sessions wander along chains of items."""

from __future__ import annotations

from pathlib import Path

import numpy as np

USERS, SESSIONS, ITEMS = 12, 6, 150
DAY_MS = 86_400_000


def write_visits(folder: Path) -> Path:
    """`retailrocket/events.csv` in `folder`, which is then a data directory; every item is visited in training."""
    rng, lines = np.random.default_rng(0), ["timestamp,visitorid,event,itemid,transactionid"]
    for user in range(USERS):
        for session in range(SESSIONS):
            length = ITEMS // USERS + 1 if session == 0 else int(rng.integers(2, 6))
            first = user * (ITEMS // USERS) if session == 0 else int(rng.integers(USERS * (ITEMS // USERS)))
            for place in range(length):
                moment = 1_433_000_000_000 + (session * 30 + user) * DAY_MS + place * 60_000
                lines.append(f"{moment},{user},view,{(first + place) % (USERS * (ITEMS // USERS))},")
    target = folder / "retailrocket" / "events.csv"
    target.parent.mkdir(parents=True)
    target.write_text("\n".join(lines) + "\n")
    return folder
