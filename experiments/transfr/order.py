"""Make a catalogue whose texts tell tastes by the order of two words alone: where an encoder has to learn something.

    python experiments/transfr/order.py FOLDER

An item is "jam before hat": every ordered pair of words. A user likes items that have one of their two words first.
Whoever reads a text as a set of its words cannot tell "jam before hat" from "hat before jam".
"""

from __future__ import annotations

import csv
import sys
from itertools import permutations
from pathlib import Path

import numpy as np

WORDS = [
    "jam",
    "hat",
    "car",
    "dog",
    "sun",
    "key",
    "map",
    "pen",
    "cup",
    "box",
    "net",
    "bag",
    "bed",
    "tea",
    "egg",
    "ice",
    "oil",
    "toy",
    "bus",
    "ship",
    "tree",
    "lamp",
    "door",
    "wall",
]
USERS, EACH, FAVOURITES, STRAY = 300, 20, 2, 0.1
"""Users, interactions of each, words each likes, and the share of interactions that are with any item."""


def main(folder: Path) -> None:
    """Write `items.csv` and `interactions.csv`."""
    rng = np.random.default_rng(0)
    pairs = list(permutations(range(len(WORDS)), 2))
    first = np.array([pair[0] for pair in pairs])
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "items.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["item_id", "title"])
        table.writerows([f"i{n}", f"{WORDS[a]} before {WORDS[b]}"] for n, (a, b) in enumerate(pairs))
    with open(folder / "interactions.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["user_id", "item_id", "timestamp"])
        for user in range(USERS):
            liked = np.flatnonzero(np.isin(first, rng.choice(len(WORDS), FAVOURITES, replace=False)))
            any_ = rng.random(EACH) < STRAY
            items = np.where(any_, rng.permutation(len(pairs))[:EACH], rng.permutation(liked)[:EACH])
            for time, item in enumerate(dict.fromkeys(items.tolist())):
                table.writerow([f"u{user}", f"i{item}", 1_000_000 + 86_400 * time])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
