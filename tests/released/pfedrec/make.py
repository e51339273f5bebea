"""Run PFedRec's public code on a small generated input and keep what it comes to.

python -m tests.released.pfedrec.make CHECKOUT
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
import torch

from tests.released.zhang import BATCH, DIM, ITEMS, USERS, Arrays, draws, trained

CONFIG = {
    "latent_dim": DIM,
    "lr": 0.1,
    "lr_eta": 80,
    "batch_size": BATCH,
    "l2_regularization": 0.0,
    "local_epoch": 1,
    "clients_sample_ratio": 1.0,
}


FIRST = {"mild": 1.0, "hot": 40.0}
"""How large the first scorer is, by case: where it is hot, sigmoids of first scores are rounded to 0 and 1."""


def first(times: float) -> Arrays:
    """Return first values, by the names of the public model's state."""
    rng = np.random.default_rng(7)
    scorer = rng.uniform(-1, 1, (1, DIM + 1)).astype(np.float32) * np.float32(times / np.sqrt(DIM))
    table = rng.standard_normal((ITEMS, DIM)).astype(np.float32)
    return {"embedding_item.weight": table, "affine_output.weight": scorer[:, :-1], "affine_output.bias": scorer[:, -1]}


def made(folder: Path) -> Arrays:
    """Return inputs and what came out: the server's table, and of every client table, scorer and all probabilities."""
    given = draws()
    out = dict(given)
    for case, (wide, kind) in product(FIRST, ((True, "f64"), (False, "f32"))):
        begun = first(FIRST[case])
        out |= {f"{case}.first.{name}": value for name, value in begun.items()}
        for number, engine in trained(folder, CONFIG, given, begun, wide):
            name = f"{case}.{kind}.{number}"
            own = [engine.client_model_params[user] for user in range(USERS)]
            out[f"{name}.item"] = engine.server_model_param["embedding_item.weight"].numpy()
            for key in begun:
                out[f"{name}.own.{key}"] = torch.stack([state[key] for state in own]).numpy()
            shown = []
            for state in own:
                engine.model.load_state_dict(state)
                shown.append(engine.model(torch.arange(ITEMS)).flatten().detach())
            out[f"{name}.probability"] = torch.stack(shown).numpy()
            engine.model.load_state_dict({key: torch.from_numpy(value) for key, value in begun.items()})
    return out


if __name__ == "__main__":
    np.savez_compressed(Path(__file__).with_name("golden.npz"), **made(Path(sys.argv[1])))  # type: ignore[arg-type]
