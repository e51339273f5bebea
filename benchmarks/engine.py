"""Client updates per second: the engine against loops over clients, one thread, same machine, in turns.

    python benchmarks/engine.py [--data-dir DIR] [--only base|ml-100k|fedcar|released|small|transfr|idle]

`edgefr` is all of a round but the server's step: draws, steps, training, and the release (norms, float64 sums); where
a program has a form or layers that are compiled, `vectorised` is the same by the general executor. `numpy` is the same
work by hand, in closed form, one client after another (`closed_form.py`): the rival to beat. `loop` is a careful loop
on bare tensors (autograd, touched rows only, no module, no optimiser object). `debug` is edgefr's own executor of one
client at a time. All use the same keyed draws, so all do the same work, and `numpy` has to come to the same sums. Ways
take turns; times are CPU seconds, each the best of `--repeat` turns. The first call, which may compile, is not timed.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import closed_form
import closed_form_fedcar
import numpy as np
import torch
from torch import Tensor

from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.data import datasets as data
from edgefr.data.splits.blocks import Blocks
from edgefr.data.splits.leave_one_out import LeaveOneOut
from edgefr.engine.aggregate import ReleaseTerms, ShardAggregate, release
from edgefr.engine.compiled import dispatch as formed
from edgefr.engine.compiled import mlp_phases as layered
from edgefr.engine.executors import debug, inline
from edgefr.engine.footprint import default_shard_size
from edgefr.engine.tables import LaidRows, Own, first_tables
from edgefr.engine.work import LocalWork, Updates
from edgefr.experiment.experiment import load_experiment
from edgefr.experiment.method import METHODS
from edgefr.methods.fcf.program import FCF
from edgefr.methods.fcf.settings import FCFSettings
from edgefr.methods.fedcar.program import FedCAR
from edgefr.methods.fedcar.settings import FedCARSettings
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.fedncf.program import FedNCF
from edgefr.methods.fedncf.settings import FedNCFSettings
from edgefr.methods.fedrecon.program import FedRecon
from edgefr.methods.fedrecon.settings import FedReconSettings
from edgefr.methods.pfedrec.program import PFedRec
from edgefr.methods.pfedrec.settings import PFedRecSettings
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.given import Given
from export.program import LocalProgram

LOOPS = {**closed_form.LOOPS, "fedcar": closed_form_fedcar.fedcar}
"""The loop by hand of each method that comes to sums of rows."""

APART = {"fedcar": 3e-5}
"""How far clients' own tensors may be apart, where not 1e-5: FedCAR's are 1e-4 from float64, engine and loop alike."""


def careful_loop(work: LocalWork, shared: dict[str, Tensor], private: dict[str, Tensor], clients: np.ndarray) -> None:
    """FedMF, one client after another: gather touched rows once, SGD steps on bare tensors, keep the sparse delta.

    The examples of all clients are drawn in one vectorised call, so the loop is not charged for small draws.
    """
    lr = work.phases[0].lr
    examples = work.sampler.epoch(clients, work.phases[0].name, work.round, 0)
    ends = np.cumsum(examples.counts)
    items, labels = torch.from_numpy(examples.items), torch.from_numpy(examples.label)
    for slot, (first, last) in enumerate(zip(ends - examples.counts, ends, strict=True)):
        user, label = private["user"][slot].clone(), labels[first:last]
        touched, index = items[first:last].unique(return_inverse=True)
        rows = shared["item"][touched]
        start, place = rows.clone(), index
        for at in range(0, len(place), work.sampler.batch_size):
            some = slice(at, at + work.sampler.batch_size)
            rows.requires_grad_(True)
            user.requires_grad_(True)
            scores = (rows[index[some]] * user).sum(1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, label[some])
            by_rows, by_user = torch.autograd.grad(loss, (rows, user))
            rows = rows.detach() - lr["item"] * by_rows
            user = user.detach() - lr["user"] * by_user
        _ = rows - start


def timed(ways: dict[str, tuple[Callable[[], object], int]], repeat: int) -> dict[str, float]:
    """Return clients per CPU second of each way (a call, and its clients): the best of `repeat` turns."""
    best = dict.fromkeys(ways, np.inf)
    for turn in range(repeat + 1):
        for name, (call, _) in ways.items():
            started = time.process_time()
            call()
            if turn:
                best[name] = min(best[name], time.process_time() - started)
    return {name: clients / best[name] for name, (_, clients) in ways.items()}


def heard(program: LocalProgram) -> LocalProgram:
    """Return a program whose clients have trained before and have heard of another, so that a contrast has its work."""
    first = program.init_private

    def after(seed: int, clients: Tensor) -> dict[str, Tensor]:
        own = first(seed, clients)
        return {name: value + 0.1 * name.startswith(("previous.", "message")) for name, value in own.items()}

    program.init_private = after  # type: ignore[method-assign]
    return program


def compare(
    name: str,
    program: LocalProgram,
    train: Ragged,
    items: int,
    batch_size: int,
    repeat: int,
    shard: int | None = None,
    when: str = "round",
) -> None:
    """Print one row per way of running the clients of `train` for one round, or the final phases."""
    sampler = Sampler(train, np.arange(items), items, 4, batch_size, seed=0)
    phases = [phase for phase in program.phases if phase.when == when]
    shared = program.init_shared(0)
    work = LocalWork(
        program, phases, sampler, train, 1, torch.device("cpu"), tables=made_tables(program, shared, train)
    )
    clients = np.argsort(-train.counts, kind="stable")
    clients = clients[train.counts[clients] > 0]
    used = {n for phase in phases for n in phase.uses if program.specs[n].place == "private"}

    def private(part: np.ndarray) -> dict[str, Tensor]:
        return {n: v for n, v in program.init_private(0, torch.from_numpy(part)).items() if n in used}

    size = shard or default_shard_size(program, batch_size, 64)
    shards = [clients[at : at + size] for at in range(0, len(clients), size)]
    states = [private(shard) for shard in shards]
    few = clients[:: max(1, len(clients) // 300)]
    state = private(few)

    terms = ReleaseTerms(clip=None, norm="l2", by_size=False, count_everyone=False)

    def edgefr() -> None:
        for shard, own in zip(shards, states, strict=True):
            formed.released(work, terms, shared, own, shard)

    def vectorised() -> None:
        for shard, own in zip(shards, states, strict=True):
            release(inline.run(work, shared, own, shard), train.counts[shard], terms)

    ways: dict[str, tuple[Callable[[], object], int]] = {"edgefr": (edgefr, len(clients))}
    if formed.form_of(work, terms, shared, states[0], shards[0]) is not None:
        ways["vectorised"] = vectorised, len(clients)
    if program.name in LOOPS:
        every = private(clients)
        check(work, terms, shared, every, clients)
        ways["numpy"] = lambda: LOOPS[program.name](work, shared, every, clients), len(clients)
    if layered.layers_of(program, phases, {**shared, **states[0]}) is not None:
        step_by_step = copy.copy(program)
        step_by_step.layers_of = lambda phase: None  # type: ignore[method-assign]
        general = replace(work, program=step_by_step)
        ways["vectorised"] = (
            lambda: [inline.run(general, shared, own, part) for part, own in zip(shards, states, strict=True)],
            len(clients),
        )
        if when == "round":
            every = private(clients)
            sums = closed_form.transfr(work, shared, every, clients)
            check_dense(formed.released(work, terms, shared, every, clients), sums)
            ways["numpy"] = lambda: closed_form.transfr(work, shared, every, clients), len(clients)
    if type(program).gradients is not LocalProgram.gradients:
        plain = copy.copy(program)
        plain.gradients = partial(LocalProgram.gradients, plain)  # type: ignore[method-assign]
        by_autograd = replace(work, program=plain)
        ways["autograd"] = (
            lambda: [inline.run(by_autograd, shared, own, shard) for shard, own in zip(shards, states, strict=True)],
            len(clients),
        )
    if program.name == "fedmf":
        ways["loop"] = lambda: careful_loop(work, shared, state, few), len(few)
    ways["debug"] = lambda: debug.run(work, shared, state, few), len(few)
    speeds = timed(ways, repeat)
    per = train.counts.sum() * 5 / len(clients)
    print(f"{name}: {len(clients)} clients, {per:.0f} examples each, shards of {size}")
    for way, speed in speeds.items():
        print(f"  {way:<11}{speed:>10,.0f} clients/s   {speeds['edgefr'] / speed:>7.1f}")


def check(
    work: LocalWork, terms: ReleaseTerms, shared: dict[str, Tensor], private: dict[str, Tensor], clients: np.ndarray
) -> None:
    """Fail unless the loop by hand comes to the engine's sums and norms."""
    found = formed.released(work, terms, shared, private, clients)
    sums, norms, left = LOOPS[work.program.name](work, shared, private, clients)
    ((rows, values),) = found.rows.values()
    size, apart = np.abs(sums).max(), APART.get(work.program.name, 1e-5)
    np.testing.assert_allclose(values.numpy(), sums[rows.numpy()], atol=1e-5 * size)
    np.testing.assert_allclose(found.norms, norms, rtol=1e-4)
    for name, value in found.private.items():
        np.testing.assert_allclose(value.numpy(), np.stack([own[name] for own in left]), atol=apart)


def check_dense(found: ShardAggregate, sums: dict[str, np.ndarray]) -> None:
    """Fail unless the loop by hand comes to the engine's sums, but for what Adam makes of rounding."""
    for name, value in found.dense.items():
        apart = np.linalg.norm(value.numpy() - sums[name]) / np.linalg.norm(sums[name])
        if apart > 0.02:
            raise AssertionError(f"{name}: the loop's sums are {apart:.1%} apart")


def made_tables(program: LocalProgram, shared: dict[str, Tensor], train: Ragged) -> dict[str, Own]:
    """A table for every client, of programs whose server makes some."""
    out = first_tables(program, shared)
    for name, table in out.items():
        if isinstance(table, LaidRows):
            values = torch.randn(len(train), *table.table.shape, generator=torch.Generator().manual_seed(0))
            out[name] = table.joined(table.table, np.arange(len(train)), values)
    return out


def as_released(method: str, items: int) -> LocalProgram:
    """The local program of `fidelity: released` over leave-one-out."""
    settings = load_experiment(overrides=[f"method={method}", "fidelity=released", "data=ml-100k"]).settings
    return METHODS[method].program(settings, Given(items, 1))


def small_clients(clients: int, items: int) -> Ragged:
    """Clients with 8 positives: 40 examples, about 40 touched rows."""
    rng = np.random.default_rng(0)
    return Ragged.from_lists([rng.choice(items, 8, replace=False) for _ in range(clients)])


class Idle(FedMF):
    """Clients that do nothing: no epochs, so all that is left is what the engine does for a client anyway."""

    def __init__(self) -> None:
        super().__init__(FedMFSettings(dim=1), 10, 1)
        self.specs = {"user": self.specs["user"]}
        self.phases = (replace(self.phases[0], uses=("user",), trains=("user",), epochs=0),)


def idle(clients: int, shard: int, repeat: int) -> None:
    """Print the microseconds that a client costs when it does nothing."""
    train = Ragged(np.zeros(clients, np.int32), np.arange(clients + 1))
    program = Idle()
    sampler = Sampler(train, np.arange(10), 10, 0, 1, seed=0)
    work = LocalWork(program, program.phases, sampler, train, 1, torch.device("cpu"))
    private = program.init_private(0, torch.arange(clients))
    terms = ReleaseTerms(clip=None, norm="l2", by_size=False, count_everyone=False)

    def run(executor: Callable[..., Updates], few: int) -> None:
        for at in range(0, few, shard):
            numbers = np.arange(at, min(at + shard, few))
            own = {name: value[numbers[0] : numbers[-1] + 1] for name, value in private.items()}
            release(executor(work, {}, own, numbers), train.counts[numbers], terms)

    print(f"clients that do nothing, shards of {shard}")
    for name, executor, few in (("vectorised", inline.run, clients), ("debug", debug.run, 1000)):
        speed = timed({name: (partial(run, executor, few), few)}, repeat)[name]
        print(f"  {name:<11}{1e6 / speed:>10.2f} µs/client")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--only", choices=["base", "ml-100k", "fedcar", "released", "small", "transfr", "idle"])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only in (None, "base"):
        blocks = Blocks()
        stream = blocks.restrict(data.load("ml-100k", options.data_dir))
        block = blocks.apply(stream, 0)[0]
        train, items = block.train, len(block.pool)
        programs = (
            FedMF(FedMFSettings(), items, 1),
            FedNCF(FedNCFSettings(), items, 1),
            PFedRec(PFedRecSettings(), items, 1),
        )
        for program in programs:
            compare(f"{program.name}, base block of ml-100k, batch 512", program, train, items, 512, options.repeat)
    if options.only in (None, "ml-100k"):
        dataset = data.load("ml-100k", options.data_dir)
        train, items = LeaveOneOut().apply(dataset, 0)[0].train, len(dataset.catalogue.ids)
        for name, program in (
            ("FedMF", FedMF(FedMFSettings(), items, 1)),
            ("FedRecon", FedRecon(FedReconSettings(), items, 1)),
            ("FCF", FCF(FCFSettings(), items)),
        ):
            compare(f"{name}, ml-100k, batch 512", program, train, items, 512, options.repeat)
    if options.only in (None, "fedcar"):
        dataset = data.load("ml-100k", options.data_dir)
        train, items = LeaveOneOut().apply(dataset, 0)[0].train, len(dataset.catalogue.ids)
        for name, program in (
            ("FedCAR", FedCAR(FedCARSettings(), items, 1)),
            ("FedCAR, context alone", FedCAR(FedCARSettings(negative="none"), items, 1)),
            ("FedCAR, neither", FedCAR(FedCARSettings(negative="none", context=0), items, 1)),
            ("PFedRec", PFedRec(PFedRecSettings(), items, 1)),
        ):
            compare(f"{name}, ml-100k, batch 256", heard(program), train, items, 256, options.repeat, 64)
    if options.only in (None, "released"):
        dataset = data.load("ml-100k", options.data_dir)
        train, items = LeaveOneOut().apply(dataset, 0)[0].train, len(dataset.catalogue.ids)
        for method in ("pfedrec", "gpfedrec"):
            for kind, program in (
                ("as released", as_released(method, items)),
                ("by default", METHODS[method].program(METHODS[method].settings(), Given(items, 1))),
            ):
                compare(f"{method} {kind}, ml-100k, batch 256", program, train, items, 256, options.repeat)
    if options.only in (None, "small"):
        train = small_clients(8000, 3000)
        compare(
            "FedMF, small clients, 5 steps of 8",
            FedMF(FedMFSettings(), 3000, 1),
            train,
            3000,
            8,
            options.repeat,
        )
    if options.only in (None, "transfr"):
        dataset = data.load("demo")
        train, items = LeaveOneOut().apply(dataset, 0)[0].train, len(dataset.catalogue.ids)
        text = torch.from_numpy(np.random.default_rng(0).standard_normal((items, 156)).astype(np.float32))
        program = TransFR(TransFRSettings(), text, 30)
        some = train.take(np.arange(0, len(train), 4))
        for when, kind in (("round", "30 epochs"), ("final", "local training")):
            compare(f"TransFR, demo, batch 256, {kind}", program, some, items, 256, options.repeat, when=when)
    if options.only in (None, "idle"):
        idle(100_000, 1024, options.repeat)


if __name__ == "__main__":
    main()
