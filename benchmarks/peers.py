"""FedMF's clients by edgefr, a loop in numpy, pfl-research and F3CRec's released code: one thread, in turns.

    pip install pfl && python benchmarks/peers.py --data-dir DIR [--f3crec CHECKOUT] [--repeat 5]

The work is a round of the base block of ml-100k (587 clients, batch 512, one epoch). edgefr's, numpy's and pfl's are
without the server's step, and of the same examples: `check` holds what pfl's clients change in sum to edgefr's. pfl
gets each client's examples ready, its vector is the client's own, its model the item table alone. The released code (a
checkout of Jaehyung-Lim/F3CRec-CIKM-25) draws its own examples, and its round ends with its mean. CPU seconds, each the
best of `--repeat` turns; the first turn is not timed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import closed_form
import numpy as np
import torch
from engine import timed
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from pfl.stats import WeightedStatistics
from torch import Tensor

from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.data import datasets as data
from edgefr.data.splits.blocks import Blocks
from edgefr.engine.aggregate import ReleaseTerms
from edgefr.engine.compiled import dispatch as formed
from edgefr.engine.work import LocalWork
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings

TERMS = ReleaseTerms(clip=None, norm="l2", by_size=False, count_everyone=False)


class Module(torch.nn.Module):
    """FedMF as pfl trains it: the table is what the model learns, `own` the vector of whoever is being trained."""

    def __init__(self, items: Tensor):
        super().__init__()
        self.item, self.own = torch.nn.Parameter(items.clone()), torch.zeros(0)

    def loss(self, items: Tensor, label: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(self.item[items] @ self.own, label)

    def metrics(self, items: Tensor, label: Tensor) -> dict[str, object]:
        return {}


class Averaging(FederatedAveraging):  # type: ignore[type-arg]
    """Federated averaging whose clients have a vector of their own, which never leaves them."""

    def __init__(self, vectors: Tensor):
        super().__init__()
        self.vectors = vectors

    def train_one_user(self, first, model, user_dataset, context):  # type: ignore[no-untyped-def]
        model.pytorch_model.own = self.vectors[int(user_dataset.user_id)].clone().requires_grad_(True)
        return super().train_one_user(first, model, user_dataset, context)


class Pfl:
    """A round of pfl over these clients, whose examples are drawn before."""

    def __init__(self, work: LocalWork, shared: dict[str, Tensor], private: dict[str, Tensor], clients: np.ndarray):
        rates, (phase,) = work.phases[0].lr, work.phases
        assert isinstance(work.sampler, Sampler)
        examples = work.sampler.epoch(clients, phase.name, work.round, 0)
        ends = np.cumsum(examples.counts)
        items, labels = torch.from_numpy(examples.items).long(), torch.from_numpy(examples.label)
        users = {
            str(slot): Dataset([items[first:last], labels[first:last]], user_id=str(slot))
            for slot, (first, last) in enumerate(zip(ends - examples.counts, ends, strict=True))
        }
        names = itertools.cycle(users)
        self.module = Module(shared["item"])
        self.model = PyTorchModel(
            self.module,
            lambda parameters, lr: torch.optim.SGD(
                [{"params": list(parameters), "lr": rates["item"]}, {"params": [self.module.own], "lr": rates["user"]}],
                lr=lr,
            ),
            torch.optim.SGD(self.module.parameters(), lr=1.0),
        )
        self.algorithm = Averaging(private["user"])
        self.backend = SimulatedBackend(FederatedDataset(users.__getitem__, lambda: next(names)), None)
        how = NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=rates["item"], local_batch_size=work.sampler.batch_size
        )
        self.context = CentralContext(
            current_central_iteration=0,
            do_evaluation=False,
            cohort_size=len(clients),
            population=Population.TRAIN,
            algorithm_params=NNAlgorithmParams(
                central_num_iterations=1, evaluation_frequency=0, train_cohort_size=len(clients), val_cohort_size=0
            ),
            model_train_params=how,
            model_eval_params=None,
            seed=0,
        )

    def round(self) -> WeightedStatistics:
        """Train everybody; return the sum of what they changed."""
        gathered = self.backend.async_gather_results(self.model, self.algorithm, central_context=self.context)
        try:
            gathered.send(None)
        except StopIteration as ended:
            found, _ = ended.value
            return found
        raise AssertionError("pfl waits for nobody")


def released(folder: Path, train: Ragged, items: int) -> Callable[[], None]:
    """Return a round of F3CRec's released code over these clients' interactions."""
    sys.path.insert(0, str(folder / "fcrec"))
    from baseline.fedmf.fedmf import FedMF_Engine  # type: ignore[import-not-found]

    had = {user: dict.fromkeys(train[user].tolist(), 1.0) for user in np.flatnonzero(train.counts).tolist()}
    of_paper = {"dim": 32, "lr": 0.5, "num_ns": 4, "batch_size": 512, "local_epoch": 1, "clients_sample_ratio": 1.0}
    other = {"num_task": 4, "weight_decay": 0, "optimizer": "SGD", "dp": 0.0, "reg_reduction": "sum"}
    turned = {"client_cl": True, "server_cl": True}
    settings = argparse.Namespace(num_user=len(train), num_item=items, **of_paper, **other, **turned)
    engine = FedMF_Engine(settings, "cpu")
    engine.train_mat_dict["TASK_0"] = had
    return partial(engine.fed_train_a_round, 0, True, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--f3crec", type=Path, help="folder of F3CRec's released code")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    blocks = Blocks()
    block = blocks.apply(blocks.restrict(data.load("ml-100k", options.data_dir)), 0)[0]
    train, items = block.train, len(block.pool)
    program = FedMF(FedMFSettings(), items, 1)
    sampler = Sampler(train, np.arange(items), items, 4, 512, seed=0)
    work = LocalWork(program, program.phases, sampler, train, 1, torch.device("cpu"))
    clients = np.flatnonzero(train.counts > 0)
    shared, private = program.init_shared(0), program.init_private(0, torch.from_numpy(clients))
    peer = Pfl(work, shared, private, clients)
    check(partial(formed.released, work, TERMS, shared, private, clients), peer, items)
    shards = np.array_split(np.arange(len(clients)), len(clients) // 64)

    def edgefr() -> None:
        for at in shards:
            formed.released(work, TERMS, shared, {n: v[at] for n, v in private.items()}, clients[at])

    ways = {
        "edgefr": (edgefr, len(clients)),
        "numpy": (lambda: closed_form.LOOPS["fedmf"](work, shared, private, clients), len(clients)),
        "pfl": (peer.round, len(clients)),
    }
    if options.f3crec is not None:
        ways["released"] = released(options.f3crec, train, items), len(clients)
    speeds = timed(ways, options.repeat)
    for way, speed in speeds.items():
        print(f"{way:<8}{speed:>10,.0f} clients/s   {speeds['edgefr'] / speed:>7.1f}")


def check(ours, peer: Pfl, items: int) -> None:  # type: ignore[no-untyped-def]
    """Fail unless pfl's clients change the table as ours do."""
    found, theirs = ours(), peer.round()["item"].double().numpy()
    rows, sums = found.rows["item"]
    total = np.zeros_like(theirs)
    total[rows.numpy()] = sums.numpy()
    np.testing.assert_allclose(theirs, total, atol=1e-5 * np.abs(total).max())


if __name__ == "__main__":
    main()
