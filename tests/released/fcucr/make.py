"""Write `golden.npz`: what FCUCR's public code gives on the generated clients of `inputs.py`, in float64.

    python -m tests.released.fcucr.make FOLDER     FOLDER: a checkout's `code4FCUCR`

The public loop runs as it is, `train.run` with `--num_epochs 4 --lr 1e-1 --distil_para 10`, dropout off. Handed to it:
clients, first values and negatives. Taken out after a round: the global model, the clients' own tensors, prototypes,
answers, and scores of the whole catalogue. It names float32 in two places, which stand for float64 here.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tests.released.fcucr import inputs

GOLDEN = Path(__file__).with_name("golden.npz")


class Wide:
    """This is torch, whose float32 is float64."""

    float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def opened(folder: Path) -> tuple[Any, Any, Any, Any]:
    """Import the public modules: train, client, model and the functions they share."""
    if "tensorboard" not in sys.modules:
        stub = types.ModuleType("torch.utils.tensorboard")
        stub.SummaryWriter = object  # type: ignore[attr-defined]  # imported there and never used
        sys.modules["torch.utils.tensorboard"] = stub
    sys.path.insert(0, str(folder))
    import aggreator  # type: ignore[import-not-found]
    import client  # type: ignore[import-not-found]
    import model  # type: ignore[import-not-found]
    import train  # type: ignore[import-not-found]
    from utils import myfunction  # type: ignore[import-not-found]

    for module in (aggreator, client, model, myfunction, train):
        module.torch = Wide()
    return train, client, model, myfunction


def frame(rows: list[tuple[int, int, tuple[int, ...]]]) -> pd.DataFrame:
    """Return interactions (user, session, item) with numbers from 1, and an index that never is 0.

    The row of index 0 gets item 0, padding, for a negative in the public code: one position of one client.
    """
    flat = [(user, session, item + 1) for user, session, items in rows for item in items]
    return pd.DataFrame(flat, columns=["user_id", "session_id", "item_id"], index=range(1, len(flat) + 1))


def tensors(net: Any) -> dict[str, torch.Tensor]:
    """Return views of a public net's tensors, by the names of the local program and in its layouts."""
    attention, forward = net.attention_layers[0], net.forward_layers[0]
    d = inputs.DIM
    every = {
        "item": net.item_emb.weight[1:],
        "encoder.position": net.pos_emb.weight[1:],
        "encoder.0.attention.norm.scale": net.attention_layernorms[0].weight,
        "encoder.0.attention.norm.shift": net.attention_layernorms[0].bias,
        "encoder.0.attention.query.weight": attention.in_proj_weight[:d].T,
        "encoder.0.attention.query.bias": attention.in_proj_bias[:d],
        "encoder.0.attention.memory.weight": attention.in_proj_weight[d:].T,
        "encoder.0.attention.memory.bias": attention.in_proj_bias[2 * d :],
        "encoder.0.attention.out.weight": attention.out_proj.weight.T,
        "encoder.0.attention.out.bias": attention.out_proj.bias,
        "encoder.0.forward.norm.scale": net.forward_layernorms[0].weight,
        "encoder.0.forward.norm.shift": net.forward_layernorms[0].bias,
        "encoder.0.forward.inner.weight": forward.conv1.weight[:, :, 0].T,
        "encoder.0.forward.inner.bias": forward.conv1.bias,
        "encoder.0.forward.outer.weight": forward.conv2.weight[:, :, 0].T,
        "encoder.0.forward.outer.bias": forward.conv2.bias,
        "encoder.norm.scale": net.last_layernorm.weight,
        "encoder.norm.shift": net.last_layernorm.bias,
    }
    return {name: value.data for name, value in every.items()}


def own(net: Any) -> dict[str, torch.Tensor]:
    """Return views of a public net's prediction module, likewise."""
    mlp = net.mlp4logfeats
    every = {
        "prediction.0.weight": mlp.fc1.weight.data.T,
        "prediction.0.bias": mlp.fc1.bias.data,
        "prediction.slope": mlp.dice.alpha.data,
        "prediction.scale": mlp.dice.bn.weight.data,
        "prediction.shift": mlp.dice.bn.bias.data,
        "prediction.1.weight": mlp.fc2.weight.data.T,
        "prediction.1.bias": mlp.fc2.bias.data,
        "prediction.mean": mlp.dice.bn.running_mean,
        "prediction.variance": mlp.dice.bn.running_var,
    }
    return every


def net_of(model: Any, args: Any, number: int) -> Any:
    """Return a client's net with the first values."""
    net = model.SASRec(session_num=1, item_num=inputs.ITEMS, args=args)
    net.item_emb.weight.data.zero_()
    net.pos_emb.weight.data.zero_()
    net.attention_layers[0].in_proj_bias.data.zero_()
    for name, view in tensors(net).items():
        view.copy_(torch.from_numpy(inputs.shared()[name]))
    for name, value in inputs.private().items():
        own(net)[name].copy_(torch.from_numpy(value[number]))
    return net


def clients(client: Any, model: Any, args: Any) -> list[Any]:
    """Return the public code's clients, with the generated sessions."""
    session, rows = 100, []
    for number, made in enumerate(inputs.clients()):
        each: dict[str, list[tuple[int, int, tuple[int, ...]]]] = {"train": [], "valid": [], "test": []}
        for which, sets in (("train", made.train), ("valid", (made.valid,)), ("test", (made.test,))):
            for items in sets:
                each[which].append((number + 1, session, items))
                session += 1
        rows.append(each)
    whole = {which: frame([row for each in rows for row in each[which]]) for which in ("train", "valid", "test")}
    out = []
    for number in range(inputs.CLIENTS):
        data = {which: part[part["user_id"] == number + 1] for which, part in whole.items()}
        every = set(range(1, inputs.ITEMS + 1))
        net = net_of(model, args, number)
        out.append(
            client.client(
                data=data, all_item_ts=every, user_id=number + 1, feature_extractor=net, local_steps=1, args=args
            )
        )
    return out


class Given:
    """These are the negatives that the public sampler is handed, the newest position's first."""

    def __init__(self, myfunction: Any):
        self.round, self.left = 0, list[int]()
        sampler = myfunction.mysampler
        trained, peeked = sampler.get_nextsession, sampler.get_next_back

        def next_session(own: Any, user: int) -> Any:
            self.left = (inputs.negatives()[self.round, user - 1] + 1).tolist()
            return trained(own, user)

        def next_back(own: Any, user: int) -> Any:
            self.left = [1] * inputs.LENGTH  # drawn there and not used
            return peeked(own, user)

        sampler.get_nextsession, sampler.get_next_back = next_session, next_back
        myfunction.random_neq = lambda all, s: self.left.pop()


def run(folder: Path) -> dict[str, np.ndarray]:
    """Return the golden arrays, by round and name."""
    torch.set_default_dtype(torch.float64)
    train, client, model, myfunction = opened(folder)
    arguments = f"--device cpu --method my --KB_len {inputs.TOP_K} --distil_para {inputs.CLAMP} --lr {inputs.LR}"
    arguments += f" --num_epochs {inputs.EPOCHS} --maxlen {inputs.LENGTH} --hidden_units {inputs.DIM}"
    arguments += f" --dropout_rate 0 --n_rounds {inputs.ROUNDS} --output {os.devnull}"
    args = train.parse_args(arguments.split())
    everyone, draws, out = clients(client, model, args), Given(myfunction), dict[str, np.ndarray]()
    mixed, known = train.CentralizedAggregator.mix, dict[str, dict[int, np.ndarray]]()

    def mix(server: Any) -> None:
        mixed(server)
        draws.round += 1
        if draws.round in inputs.KEPT:
            out.update(taken(draws.round, server, everyone))

    def scored(which: str) -> Any:
        def score(net: Any, sampler: Any, user: int, reply: torch.Tensor, args: Any) -> tuple[float, float]:
            seq, _ = getattr(sampler, f"get_{which}")()
            scores = net.predict(user, seq, reply, np.arange(1, inputs.ITEMS + 1)[None])
            known.setdefault(which, {})[user] = scores.detach().numpy().ravel()
            if len(known[which]) == inputs.CLIENTS:
                found = known.pop(which)
                if draws.round in inputs.KEPT:
                    out[f"{draws.round} scores {which}"] = np.stack([found[n + 1] for n in range(inputs.CLIENTS)])
            return 0.0, 0.0

        return score

    train.CentralizedAggregator.mix, train.init_client = mix, lambda args: everyone
    train.evaluate, train.evaluate_valid = scored("test"), scored("valid")
    train.SASRec = lambda session_num, item_num, args: model.SASRec(session_num, inputs.ITEMS, args)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        train.run(args)
    return out


def taken(number: int, server: Any, everyone: list[Any]) -> dict[str, np.ndarray]:
    """Return what is kept of a round: arrays by name."""
    out = {name: value.numpy().copy() for name, value in tensors(server.global_model).items()}
    each = [own(one.feature_extractor) for one in everyone]
    for name in each[0]:
        values = np.stack([tensors[name].numpy() for tensors in each])
        out[name], out[f"sums of {name}"] = values[list(inputs.SHOWN)], inputs.sums(name, values)
    out["sent"] = np.stack([server.KB_feats[one.session_id].numpy().ravel() for one in everyone])
    out["prototype"] = np.stack([one.other_feats.numpy().ravel() for one in everyone])
    return {f"{number} {name}": value for name, value in out.items()}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    np.savez_compressed(GOLDEN, **{n: v.astype(np.float32) for n, v in run(Path(sys.argv[1])).items()})  # type: ignore[arg-type]
    print(f"{GOLDEN}: {GOLDEN.stat().st_size / 1e6:.1f} MB")
