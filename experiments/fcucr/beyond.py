"""A device could rank by this beside a finished sequence model: its history, popularity, what follows its last item.

    python experiments/fcucr/beyond.py DATA RUN [RUN ...]

Nothing is trained here (ours, not the paper's). An item's score is the model's, of unit spread over the items, plus a
weight times log(1 + clients who had it), plus one times log(1 + training sessions that hold it with the last item);
items that the client has had come first. The weights are those with the best HR@10 + NDCG@10 of validation sessions,
and with them test sessions are asked: among 1 + 100 and among all items, and of targets that are new to the client.
The same without the model stands beside it. One line of CSV per run and scorer.
"""

import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgefr.engine.model import Model
from edgefr.fleet import load_fleet
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.ranking import Scorer, evaluate
from edgefr.simulation.evaluation.references import repeats
from edgefr.simulation.loop import Training
from edgefr.simulation.prepare import prepare
from edgefr.simulation.runs.run import Run

WEIGHTS = (0.0, 1.0, 3.0, 10.0)
FIRST = 1e4  # what an item that was had is given


def ask(path: Path, data_dir: Path) -> None:
    """Print what one run's model comes to with each of its helpers, weights chosen on validation sessions."""
    run = Run.open(path)
    prepared = prepare(run.experiment, data_dir, "cpu")
    training = Training.start(
        run.experiment, prepared, load_fleet(path / "devices.yaml"), torch.device("cpu"), lambda events: None
    )
    stage, model = training.stage, Model.of(run.read_tensors("model"), training.federation.program)
    split, sessions = prepared.train_split, prepared.sessions
    parts = {}
    for which in ("valid", "test"):
        counted = references.last_item_cooccurrence(split, sessions, which)
        parts[which] = {
            "model": of_unit_spread(stage.score(training, model, which)),
            "popularity": logged(references.popularity(split)),
            "follows": logged(lambda u, i, counted=counted: counted(u, i) // (1 + len(split.train))),
            "history": lambda u, i, which=which: FIRST * references.holds(stage.had(which), u, i, split),
        }
    zero = {"model": (0.0,), "popularity": (1.0,), "follows": (0.0,), "history": (1.0,)}
    for name, grid in {
        "model": zero | {"model": (1.0,), "popularity": (0.0,), "history": (0.0,)},
        "history, model": zero | {"model": (1.0,), "popularity": (0.0,)},
        "history, popularity": zero,
        "history, model, popularity": zero | {"model": (1.0,), "popularity": WEIGHTS},
        "history, follows, popularity": zero | {"follows": WEIGHTS},
        "history, model, follows, popularity": zero | {"model": (1.0,), "popularity": WEIGHTS, "follows": WEIGHTS},
    }.items():
        chosen, reached = best(parts["valid"], grid, split)
        score = mixed(parts["test"], chosen)
        again = repeats(split, sessions, "test")
        new = again.users[~again.seen]
        found = [evaluate(score, split, "test", "sampled", users).metrics([10]) for users in (None, new)]
        found = [reached, *found, evaluate(score, split, "test", "full").metrics([10])]
        shown = [measured[name] for measured in found for name in ("HR@10", "NDCG@10")]
        weights = " ".join(f"{key}={weight:g}" for key, weight in chosen.items() if weight)
        print(f'{path.name},"{name}","{weights}",' + ",".join(f"{value:.4f}" for value in shown), flush=True)


def best(parts: dict[str, Scorer], grid: dict[str, tuple[float, ...]], split: Any) -> tuple[dict, dict]:
    """Return the weights with the best HR@10 + NDCG@10 of validation sessions, and these."""
    kept = {name: remembered(score) for name, score in parts.items()}
    tried = []
    for weights in product(*grid.values()):
        chosen = dict(zip(grid, weights, strict=True))
        tried.append((chosen, evaluate(mixed(kept, chosen), split, "valid", "sampled").metrics([10])))
    return max(tried, key=lambda pair: sum(pair[1].values()))


def mixed(parts: dict[str, Scorer], weights: dict[str, float]) -> Scorer:
    """Return the weighted sum of what has a weight."""
    return lambda users, items: sum(w * parts[name](users, items) for name, w in weights.items() if w)


def of_unit_spread(score: Scorer) -> Scorer:
    """Return the score, of mean 0 and spread 1 over all items."""

    def scored(users: np.ndarray, items: Any) -> np.ndarray:
        pool = np.asarray(score(users, None), np.float64)
        mean, spread = pool.mean(axis=1, keepdims=True), pool.std(axis=1, keepdims=True)
        own = pool if items is None else np.asarray(score(users, items), np.float64)
        return (own - mean) / np.where(spread > 0, spread, 1.0)

    return scored


def logged(score: Scorer) -> Scorer:
    """Return the logarithm of one more than a count."""
    return lambda users, items: np.log1p(np.asarray(score(users, items), np.float64))


def remembered(score: Callable[..., np.ndarray]) -> Scorer:
    """Return the score, which is asked once about the same users and items."""
    known: dict[tuple[bytes, bytes], np.ndarray] = {}

    def scored(users: np.ndarray, items: Any) -> np.ndarray:
        key = (users.tobytes(), b"" if items is None else items.tobytes())
        if key not in known:
            known[key] = score(users, items)
        return known[key]

    return scored


if __name__ == "__main__":
    torch.set_num_threads(1)
    measures = [
        f"{on} {m}" for on in ("validation", "test", "test new", "test all items") for m in ("HR@10", "NDCG@10")
    ]
    print("run,scorer,weights," + ",".join(measures))
    for folder in sys.argv[2:]:
        ask(Path(folder), Path(sys.argv[1]))
