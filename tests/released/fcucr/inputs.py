"""Generated clients, sessions, negatives and first values: both sides of the comparison are given these.

Everything comes from numpy's `RandomState`, whose numbers are fixed for good, so no file holds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

CLIENTS, ITEMS, LENGTH, DIM, HIDDEN = 20, 60, 8, 50, 80
ROUNDS, KEPT = 4, (1, 3, 4)
"""Rounds that are run, and those whose numbers are kept."""
EPOCHS, LR, TOP_K, CLAMP = 4, 0.001, 6, 300.0
SHOWN = (0, 7, 19)
"""Clients whose prediction module is kept whole; of the others, eight sums of it."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Client:
    """One client has training sessions, a validation and a test session: numbers of items from 0."""

    train: tuple[tuple[int, ...], ...]
    valid: tuple[int, ...]
    test: tuple[int, ...]


@cache
def clients() -> tuple[Client, ...]:
    """Return clients with one to four training sessions, some shorter than a window and some longer."""
    draws = np.random.RandomState(1)
    made = []
    for number in range(CLIENTS):
        liked = draws.choice(ITEMS, 25, replace=False)
        lengths = draws.randint(2, 15, 3 + number % 4)
        rows = [tuple(int(item) for item in draws.choice(liked, length)) for length in lengths]
        made.append(Client(tuple(rows[:-2]), rows[-2], rows[-1]))
    return tuple(made)


@cache
def negatives() -> Ints:
    """Return a negative for every round, client and position [ROUNDS, CLIENTS, LENGTH], none of the client's own."""
    draws = np.random.RandomState(2)
    out = np.zeros((ROUNDS, CLIENTS, LENGTH), np.int64)
    for number, client in enumerate(clients()):
        others = np.setdiff1d(np.arange(ITEMS), [item for row in client.train for item in row])
        out[:, number] = draws.choice(others, (ROUNDS, LENGTH))
    return out


@cache
def shared() -> dict[str, Floats]:
    """Return the first item table and encoder, by the names of the local program; all clients start from them."""
    draws = np.random.RandomState(3)
    shapes = {
        "item": (ITEMS, DIM),
        "encoder.position": (LENGTH, DIM),
        "encoder.0.attention.norm.scale": (DIM,),
        "encoder.0.attention.norm.shift": (DIM,),
        "encoder.0.attention.query.weight": (DIM, DIM),
        "encoder.0.attention.query.bias": (DIM,),
        "encoder.0.attention.memory.weight": (DIM, 2 * DIM),
        "encoder.0.attention.memory.bias": (DIM,),
        "encoder.0.attention.out.weight": (DIM, DIM),
        "encoder.0.attention.out.bias": (DIM,),
        "encoder.0.forward.norm.scale": (DIM,),
        "encoder.0.forward.norm.shift": (DIM,),
        "encoder.0.forward.inner.weight": (DIM, DIM),
        "encoder.0.forward.inner.bias": (DIM,),
        "encoder.0.forward.outer.weight": (DIM, DIM),
        "encoder.0.forward.outer.bias": (DIM,),
        "encoder.norm.scale": (DIM,),
        "encoder.norm.shift": (DIM,),
    }
    return {name: draws.normal(float(name.endswith("scale")), 0.1, shape) for name, shape in shapes.items()}


@cache
def private() -> dict[str, Floats]:
    """Return the clients' own prediction modules [CLIENTS, ...], by the names of the local program."""
    draws = np.random.RandomState(4)
    shapes = {
        "prediction.0.weight": (2 * DIM, HIDDEN),
        "prediction.0.bias": (HIDDEN,),
        "prediction.slope": (HIDDEN,),
        "prediction.scale": (HIDDEN,),
        "prediction.shift": (HIDDEN,),
        "prediction.1.weight": (HIDDEN, DIM),
        "prediction.1.bias": (DIM,),
    }
    return {name: draws.normal(float(name.endswith("scale")), 0.1, (CLIENTS, *shape)) for name, shape in shapes.items()}


def sums(name: str, values: Floats) -> Floats:
    """Return eight sums of each client's tensor [CLIENTS, ...] with random weights of about 1 in all."""
    flat = values.reshape(len(values), -1)
    weights = np.random.RandomState(len(name)).normal(0, 1, (flat.shape[1], 8)) / np.sqrt(flat.shape[1])
    made: Floats = flat @ weights
    return made
