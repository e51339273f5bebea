"""Run GPFedRec's public code on a small generated input and keep what it comes to.

    python -m tests.released.gpfedrec.make CHECKOUT

Its noise of scale 0 is no distribution that torch takes, so it is taken away; its server, which casts tables to
float32, keeps float64 where the rest does.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.released.zhang import BATCH, DIM, ITEMS, USERS, Arrays, draws, trained

LAYERS = (2 * DIM, 8, 4)
CONFIG = {
    "latent_dim": DIM,
    "layers": list(LAYERS),
    "lr": 0.1,
    "lr_eta": 80,
    "batch_size": BATCH,
    "l2_regularization": 0.0,
    "local_epoch": 1,
    "clients_sample_ratio": 1.0,
    "similarity_metric": "cosine",
    "neighborhood_size": 0,
    "neighborhood_threshold": 1.0,
    "mp_layers": 1,
    "reg": 1.0,
    "dp": 0.0,
}
FIRST = {"mild": 1.0, "hot": 100.0}
"""How large the last layer is at first, by case: where it is hot, sigmoids are rounded to 0 and 1."""


def first(times: float) -> Arrays:
    """Return first values, by the names of the public model's state."""
    rng = np.random.default_rng(11)
    out = {f"embedding_{name}.weight": rng.standard_normal((n, DIM)) for name, n in (("user", 1), ("item", ITEMS))}
    for at, (wide, narrow) in enumerate(pairwise(LAYERS)):
        out[f"fc_layers.{at}.weight"] = rng.uniform(-1, 1, (narrow, wide)) * np.sqrt(3 / wide)
        out[f"fc_layers.{at}.bias"] = rng.uniform(-1, 1, narrow) / np.sqrt(wide)
    out["affine_output.weight"] = rng.uniform(-1, 1, (1, LAYERS[-1])) * times
    out["affine_output.bias"] = rng.uniform(-1, 1, 1)
    return {name: value.astype(np.float32) for name, value in out.items()}


def quiet(wide: bool) -> None:
    """Take noise of scale 0 away, and let the server keep float64 if `wide`."""
    import engine
    import utils

    nothing = types.SimpleNamespace(expand=lambda shape: types.SimpleNamespace(sample=lambda: torch.zeros(shape)))
    engine.Laplace = lambda *_: nothing
    if wide:
        zeros = types.SimpleNamespace(**{**vars(np), "zeros": lambda shape, dtype: np.zeros(shape)})
        utils.np = zeros


def made(folder: Path) -> Arrays:
    """Return inputs and what came out: the server's tables, and of every client all it has, and all probabilities."""
    given = draws()
    out = dict(given)
    for case, (wide, kind) in product(FIRST, ((True, "f64"), (False, "f32"))):
        begun = first(FIRST[case])
        out |= {f"{case}.first.{name}": value for name, value in begun.items()}
        for number, engine in trained(folder, CONFIG, given, begun, wide, quiet):
            out |= {f"{case}.{kind}.{number}.{name}": value for name, value in seen(engine, begun).items()}
    return out


def seen(engine: Any, begun: Mapping[str, np.ndarray]) -> Arrays:
    """Return the engine's tensors after a round."""
    own = [engine.client_model_params[user] for user in range(USERS)]
    server = engine.server_model_param["embedding_item.weight"]
    out = {"item": server["global"].numpy(), "made": torch.stack([server[user] for user in range(USERS)]).numpy()}
    out |= {f"own.{key}": torch.stack([state[key] for state in own]).numpy() for key in begun}
    shown = []
    for state in own:
        engine.model.load_state_dict(state)
        shown.append(engine.model(torch.arange(ITEMS)).flatten().detach())
    engine.model.load_state_dict({key: torch.from_numpy(value) for key, value in begun.items()})
    return out | {"probability": torch.stack(shown).numpy()}


if __name__ == "__main__":
    np.savez_compressed(Path(__file__).with_name("golden.npz"), **made(Path(sys.argv[1])))  # type: ignore[arg-type]
