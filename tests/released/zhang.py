"""What drives a checkout of PFedRec's or GPFedRec's public code: generated data, first values, draws and their order.

    inputs → the public `Engine`, its loader without shuffling → its tensors after one and after three rounds

Nothing of the public code is here or in the arrays but the numbers it came to.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgefr.engine.federation import Federation
from tests.released.given import Given

USERS, ITEMS, DIM, NEGATIVES, ROUNDS, BATCH = 9, 40, 8, 3, 3, 16
KEPT = (1, 3)
"""The rounds after which tensors are kept."""

Arrays = dict[str, np.ndarray]


def draws() -> Arrays:
    """Return what every client learns from in every round, in the order of its batches; one client has one batch.

    `items`, `label` [rounds, N], client after client, `counts` [clients] examples of each.
    """
    rng = np.random.default_rng(20231)
    positives = [rng.choice(ITEMS, n, replace=False) for n in (3, 4, 5, 7, 9, 10, 12, 13, 16)]
    items, label = [], []
    for _ in range(ROUNDS):
        shown, wanted = [], []
        for own in positives:
            free = np.setdiff1d(np.arange(ITEMS), own)
            each = np.array([[item, *rng.choice(free, NEGATIVES, replace=False)] for item in own])
            order = rng.permutation(each.size)
            shown.append(each.ravel()[order])
            wanted.append(np.tile([1.0, *[0.0] * NEGATIVES], len(own))[order])
        items.append(np.concatenate(shown))
        label.append(np.concatenate(wanted))
    counts = np.array([len(own) * (1 + NEGATIVES) for own in positives])
    return {"items": np.array(items, np.int32), "label": np.array(label, np.float32), "counts": counts}


def lists(given: Mapping[str, np.ndarray], number: int) -> list[list[list[Any]]]:
    """Return a round's draws as the public code holds them: users, items and ratings, a list per user."""
    ends = np.cumsum(given["counts"])
    parts = [slice(end - n, end) for end, n in zip(ends, given["counts"], strict=True)]
    users = [[user] * int(n) for user, n in enumerate(given["counts"])]
    return [users, *([given[name][number][part].tolist() for part in parts] for name in ("items", "label"))]


@contextmanager
def public(folder: Path, wide: bool) -> Iterator[Any]:
    """Open the public module `mlp` of a checkout, on the CPU, in float64 if `wide`, with a loader that keeps order."""
    sys.path.insert(0, str(folder))
    sys.modules["tensorboardX"] = types.SimpleNamespace(SummaryWriter=None)  # type: ignore[assignment]
    before = torch.Tensor.cuda, torch.Tensor.float, torch.FloatTensor
    torch.Tensor.cuda = lambda self, *_: self  # type: ignore[method-assign,assignment]
    if wide:
        torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
        torch.FloatTensor = torch.DoubleTensor  # type: ignore[misc]
    try:
        import engine
        import mlp

        def loader(self: Any, data: Any) -> Any:
            items, label = torch.tensor(data[1]), torch.tensor(data[2]).float()
            size = self.config["batch_size"]
            return [(items, i, y) for i, y in zip(items.split(size), label.split(size), strict=True)]

        engine.Engine.instance_user_train_loader = loader
        yield mlp
    finally:
        torch.Tensor.cuda, torch.Tensor.float, torch.FloatTensor = before  # type: ignore[method-assign,misc]
        sys.path.remove(str(folder))
        for name in ("engine", "mlp", "utils", "data", "metrics"):
            sys.modules.pop(name, None)


def trained(
    folder: Path,
    config: Mapping[str, Any],
    given: Arrays,
    first: Arrays,
    wide: bool,
    also: Callable[[bool], None] | None = None,
) -> Iterator[tuple[int, Any]]:
    """Yield the public engine after each round that is kept, from these first values (by the names of its state).

    `also` is told whether it runs in float64, to change more of the public modules.
    """
    kind = torch.float64 if wide else torch.float32
    with public(folder, wide) as mlp:
        if also is not None:
            also(wide)
        engine = mlp.MLPEngine({**config, "num_users": USERS, "num_items": ITEMS, "use_cuda": False})
        engine.model.to(kind)
        engine.model.load_state_dict({name: torch.from_numpy(value).to(kind) for name, value in first.items()})
        for number in range(ROUNDS):
            engine.fed_train_a_round(lists(given, number), number)
            if number + 1 in KEPT:
                yield number + 1, engine


def played(
    made: Federation, golden: Mapping[str, np.ndarray], seen: Callable[[Federation], Arrays]
) -> dict[int, Arrays]:
    """Return what is seen of a federation after each of the rounds that were kept, on the public code's draws."""
    sampler, out = Given(golden, ITEMS, BATCH), {}
    for number in range(1, ROUNDS + 1):
        made.round(number, np.arange(USERS), sampler, sampler.train)
        if number in KEPT:
            out[number] = seen(made)
    return out
