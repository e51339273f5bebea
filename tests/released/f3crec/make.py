"""Run the code that was published with F3CRec on small generated inputs, and keep what it gives.

    python -m tests.released.f3crec.make FOLDER

FOLDER is a checkout of the public code (README.md says which commit). Nothing of it is copied: it is imported from
there, with its draws replaced by those of `inputs`, in float64 and float32. The numbers go to golden.npz beside it.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
BLOCKS, ROUNDS, KEPT, DIM, BATCH, LIST = 3, 3, (1, 3), 4, 16, 5
USERS, ITEMS = (9, 12, 14), (52, 56, 60)
NEGATIVES, STEPS, CALLS = 4, 8, 3
SETTINGS = {"fedmf": {"lr": 1.0}, "fedmlp": {"lr": 0.02}, "pfedrec": {"lr": 0.02}}
EPSILON, WEIGHT, BETA = 0.006, 0.5, 0.9
CASES = {
    "fedmf ft": ("fedmf", False),
    "fedmf f3crec": ("fedmf", True),
    "fedmlp ft": ("fedmlp", False),
    "fedmlp f3crec": ("fedmlp", True),
    "pfedrec ft": ("pfedrec", False),
    "pfedrec f3crec": ("pfedrec", True),
}


def inputs() -> dict[str, np.ndarray]:
    """Generate interactions, first values and draws.

    `rows` [n, 4] are block, part (0 training, 1 validation, 2 test), user, item. `examples` [n, 5] are block, round,
    user, item, label in the order in which batches take them. `orders` [blocks, rounds, users, steps, calls, list] are
    the orders in which remembered items are drawn.
    """
    draws = np.random.default_rng(15)
    rows: list[tuple[int, int, int, int]] = []
    examples: list[tuple[int, int, int, int, int]] = []
    for block in range(BLOCKS):
        new = set(range(USERS[block - 1] if block else 0, USERS[block]))
        for user in range(USERS[block]):
            if user not in new and draws.random() < 0.3:
                continue  # away in this block
            fresh = list(range(ITEMS[block - 1] if block else 0, ITEMS[block]))
            had = {i for _, _, u, i in rows if u == user}  # nobody has an item twice, as in the published data
            likes = [i for i in range(ITEMS[block]) if (i % 3 == user % 3 or i in fresh) and i not in had]
            size = min(len(likes), int(draws.integers(5, 11)))
            own = [int(i) for i in draws.choice(likes, size, replace=False)]
            parts = [2, 1] + [0] * (size - 2)
            rows += [(block, part, user, item) for part, item in zip(parts, own, strict=True)]
            train = own[2:]
            others = np.setdiff1d(np.arange(ITEMS[block]), train)
            for number in range(ROUNDS):
                made = [(i, 1) for i in train] + [(int(i), 0) for i in draws.choice(others, NEGATIVES * len(train))]
                examples += [(block, number, user, *made[at]) for at in draws.permutation(len(made))]
        somebody = min(u for b, _, u, _ in rows if b == block)
        for item in sorted(set(range(ITEMS[block])) - {i for _, _, _, i in rows}):  # of the items that appear here
            rows.append((block, 2, somebody, item))
    shape = (BLOCKS, ROUNDS, USERS[-1], STEPS, CALLS)
    return {
        "rows": np.array(rows, np.int32),
        "examples": np.array(examples, np.int32),
        "orders": np.argsort(draws.random((*shape, LIST)), axis=-1).astype(np.int8),
        "first.user": 0.3 * draws.standard_normal((USERS[-1], DIM)),
        "first.item": 0.3 * draws.standard_normal((ITEMS[-1], DIM)),
        "first.one": 0.3 * draws.standard_normal(DIM),
        "first.scorer": 0.3 * draws.standard_normal(2 * DIM + 1),
    }


class Driven:
    """This is one run of the public code, its draws replaced by those of `given`."""

    def __init__(self, backbone: str, continual: bool, given: dict[str, np.ndarray]):
        from importlib import import_module

        self.given, self.backbone = given, backbone
        self.module = import_module(f"baseline.{backbone}.{backbone}")
        self.kept: dict[str, np.ndarray] = {}
        self.block = self.round = self.user = self.step = self.call = -1
        self._replace_draws()
        values = {**SETTINGS[backbone], "dim": DIM, "batch_size": BATCH, "topN": LIST, "eps": EPSILON, "beta": BETA}
        fixed = {"num_round": ROUNDS, "local_epoch": 1, "num_ns": NEGATIVES, "optimizer": "SGD", "weight_decay": 0}
        rest = {"lr_eta": 170, "dp": 0.0, "reg_client_cl": WEIGHT, "reg_reduction": "sum", "patience": 30, "tqdm": 0}
        flags = {"client_cl": continual, "server_cl": continual, "clients_sample_ratio": 1.0, "specific_gpu": 0}
        more = {"show_valid": False, "save_result": 0, "num_task": BLOCKS, "num_user": USERS[0], "num_item": ITEMS[0]}
        self.args = types.SimpleNamespace(**values, **fixed, **rest, **flags, **more)

    def _replace_draws(self) -> None:
        module, util = self.module, sys.modules["utils.util"]
        kd = util.get_rank_discrepancy_kd_loss

        def counted(*args: Any) -> Any:
            self.call += 1
            return kd(*args)

        class Numbers(types.SimpleNamespace):
            def __getattr__(self, name: str) -> Any:
                return getattr(np, name)

        def choice(size: int, number: int, replace: bool) -> np.ndarray:
            assert not replace
            return self.given["orders"][self.block, self.round, self.user, self.step, self.call][:number].astype(int)

        util.np = Numbers(random=types.SimpleNamespace(choice=choice))
        module.get_rank_discrepancy_kd_loss = counted
        module.random = types.SimpleNamespace(sample=lambda who, number: sorted(who))
        module.Pos_Neg_Sampler = lambda args, positives: self.examples(positives)
        module.DataLoader = lambda dataset, batch_size, shuffle: self.batches(dataset, batch_size)

    def examples(self, positives: dict[int, int]) -> np.ndarray:
        """Return the next client's examples of the round."""
        self.user, self.step = next(self.turn), -1
        e = self.given["examples"]
        own = e[(e[:, 0] == self.block) & (e[:, 1] == self.round) & (e[:, 2] == self.user), 3:]
        assert set(own[own[:, 1] == 1, 0].tolist()) == set(positives)
        return own

    def batches(self, own: np.ndarray, size: int) -> Any:
        for at in range(0, len(own), size):
            self.step, self.call = at // size, -1
            yield torch.from_numpy(own[at : at + size, 0]).long(), torch.from_numpy(own[at : at + size, 1])

    def run(self) -> dict[str, np.ndarray]:
        """Go through all blocks."""
        name = {"fedmf": "FedMF_Engine", "fedmlp": "FedMLP_Engine", "pfedrec": "PFedRec_Engine"}[self.backbone]
        data = [self._dictionaries(part) for part in range(3)]
        self.engine = getattr(self.module, name)(self.args, "cpu")
        train, aggregate = self.engine.fed_train_a_round, self.engine.validate
        valid: list[float] = []

        def a_round(task: int, is_base: bool, number: int) -> None:
            self.block, self.round = task, number
            self.turn = iter(sorted(data[0][f"TASK_{task}"]))
            train(task, is_base, number)
            if number + 1 in KEPT:
                self._keep(f"{task}.{number + 1}")

        def validate(*matrices: Any) -> Any:
            found = aggregate(*matrices)
            valid.append(found["N@20"])
            return found

        self.engine.fed_train_a_round, self.engine.validate = a_round, validate
        self._first(0, 0, 0)
        for task in range(BLOCKS):
            if task:
                self.args.num_user, self.args.num_item = USERS[task], ITEMS[task]
                self.engine.add_user_item(USERS[task], ITEMS[task])
                self._first(task, USERS[task - 1], ITEMS[task - 1])
            valid.clear()
            self.engine.run(task, data, task == 0)
            self.kept[f"valid.{task}"] = np.array(valid[:ROUNDS])
            if self.args.client_cl:
                self.kept[f"lists.{task}"] = self.engine.topn_list.numpy()
                self.kept[f"targets.{task}"] = self.engine.target_mat.numpy()
        self.kept["tested"] = self.engine.A_N20.numpy()
        return self.kept

    def _dictionaries(self, part: int) -> dict[str, dict[int, list[int]]]:
        out: dict[str, dict[int, list[int]]] = {}
        for task in range(BLOCKS):
            own = out[f"TASK_{task}"] = {}
            for _, _, user, item in self.given["rows"][(self.given["rows"][:, :2] == (task, part)).all(1)].tolist():
                own.setdefault(user, []).append(item)
        return out

    def _first(self, task: int, users: int, items: int) -> None:
        """Give new users and items, and at first the scorer, their first values."""
        engine, item = self.engine, torch.from_numpy(self.given["first.item"])
        if self.backbone == "fedmf":
            engine.user_emb.weight.data[users:] = torch.from_numpy(self.given["first.user"])[users : USERS[task]]
            engine.item_emb.weight.data[items:] = item[items : ITEMS[task]]
            engine.model = self.module.ServerMF(engine.args, engine.user_emb.weight.data, engine.item_emb.weight.data)
            return
        engine.model.item_emb.weight.data[items:] = item[items : ITEMS[task]]
        if task == 0:
            one, scorer = (torch.from_numpy(self.given[f"first.{name}"]) for name in ("one", "scorer"))
            layer = engine.model.fc_layers if self.backbone == "fedmlp" else engine.model.affine_output
            width = layer.weight.shape[1]
            layer.weight.data[0], layer.bias.data[0] = scorer[:width], scorer[width]
            if self.backbone == "fedmlp":
                engine.model.user_emb.weight.data[0] = one

    def _keep(self, when: str) -> None:
        engine = self.engine
        if self.backbone == "fedmf":
            self.kept[f"item.{when}"] = engine.item_emb.weight.detach().numpy().copy()
            self.kept[f"user.{when}"] = engine.user_emb.weight.detach().numpy().copy()
            return
        self.kept[f"item.{when}"] = engine.model.item_emb.weight.detach().numpy().copy()
        names = {"fc_layers": "scorer", "affine_output": "scorer", "user_emb": "user"}
        for key in next(iter(engine.client_model_params.values())):
            if not key.startswith("item_emb"):
                layer, _, what = key.partition(".")
                own = {u: p[key].numpy().reshape(-1) for u, p in engine.client_model_params.items()}
                name = f"{names[layer]}.{what}" if names[layer] == "scorer" else names[layer]
                nothing = np.full_like(next(iter(own.values())), np.nan)
                self.kept[f"{name}.{when}"] = np.stack([own.get(u, nothing) for u in range(USERS[engine_task(when)])])


def engine_task(when: str) -> int:
    """Return the block of a name as "1.3"."""
    return int(when.partition(".")[0])


def main(checkout: Path) -> None:
    """Run all cases, write golden.npz."""
    sys.path.insert(0, str(checkout / "fcrec"))
    import utils.util  # noqa: F401  # of the checkout

    given = inputs()
    out, narrow = dict(given), torch.Tensor.float
    for kind, to in (("float32", narrow), ("float64", torch.Tensor.double)):
        torch.set_default_dtype(getattr(torch, kind))
        torch.Tensor.float = to  # type: ignore[method-assign]  # targets as wide as predictions
        for name, (backbone, continual) in CASES.items():
            found = Driven(backbone, continual, given).run()
            out |= {f"{kind} {name}/{key}": value for key, value in found.items()}
    np.savez_compressed(HERE / "golden.npz", **out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
