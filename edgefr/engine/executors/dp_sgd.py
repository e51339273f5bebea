"""The executor of example-level DP-SGD takes one client at a time and gradients example by example.

records → a gradient of each (`torch.func`) → clip, sum, mean, noise (float64) → the engine's optimiser

A *record* is one interaction with its negatives, drawn from all items but its own, so that its gradient depends on no
other interaction. A step takes up to batch_size / (1 + negatives) records and divides by that number, so a client with
few records takes shorter steps. Every tensor that a phase trains is clipped and noised, private ones too, since later
gradients depend on them; of a table every row is noised. Training after the rounds is `inline`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.func import grad, vmap

from edge.sampling import EVERYTHING, Sampler
from edgefr.config import random_streams as purposes
from edgefr.engine.executors import inline
from edgefr.engine.optimisers import Optimiser
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates, trained, without_memory
from export.batches import One
from export.program import LocalProgram, Phase, SessionProgram, Tensors
from privacy import keyed
from privacy.clip import factors_by
from privacy.errors import InputError
from privacy.example_plan import ExamplePlan, plan_examples
from privacy.mechanism import Noise
from privacy.noise_key import NoiseKey, NoiseStream
from privacy.settings import PrivacySettings

FLOAT = 4
AT_ONCE = 2**25
"""Bytes of gradients that are held at once; of more records they are taken in parts."""

TOLERANCE = 1e-5
"""Of a probed gradient, relative to the largest value of its tensor's over all examples."""


@dataclass(frozen=True)
class DPSGD:
    """This executor clips each record's gradient to `clip` and adds noise of standard deviation `sigma` x `clip`.

    Noise is keyed by `key` (None: a secret one) with seed, phase, round and client.
    """

    clip: float
    sigma: float
    key: NoiseKey = field(default_factory=NoiseKey.new)

    def __call__(self, work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
        if all(phase.when == "final" for phase in work.phases):
            return inline.run(work, shared, private, clients)
        check_program(work.program)
        if work.memory is not None:
            raise InputError("privacy.examples protects no replayed interactions; use a strategy without memory")
        sampler, private = cast(Sampler, work.sampler), without_memory(work.begun(private, clients))
        steps = [
            PrivateSteps(work.program, phase, self.clip, self.sigma, planned_records(sampler), work.device)
            for phase in work.phases
        ]
        ended = []
        for slot, number in enumerate(clients.tolist()):
            tensors = {**shared, **{name: value[slot].to(work.device) for name, value in private.items()}}
            for phase_steps in steps:
                purpose = purposes.noise_of_steps(phase_steps.phase.name)
                noise = self.key.stream(work.sampler.seed, purpose, work.round, number)
                _train(sampler, work.round, tensors, phase_steps, number, noise)
            ended.append(tensors)
        return _updates(work, shared, ended)


class PrivateSteps:
    """These are the steps of one phase by gradients of the program's loss of single records.

    Tensors are one client's, whole; records are int64 [n, 1 + negatives], the interaction's item first. `planned`:
    records of a full step, which sums are divided by.
    """

    def __init__(
        self, program: LocalProgram, phase: Phase, clip: float, sigma: float, planned: int, device: torch.device
    ):
        self.program, self.phase, self.clip, self.sigma, self.planned = program, phase, clip, sigma, planned
        self.device = device
        self._read: Tensors = {}  # a client's tensors, of tables the rows `_rows` that the records read
        self._rows = torch.zeros(0, dtype=torch.int64)

    def step(self, tensors: Tensors, records: Tensor, noise: NoiseStream | None = None) -> dict[str, Tensor]:
        """Return the noised sum of the records' clipped gradients / `planned`, whole tensors by name.

        Draws use up `noise`, tensor after tensor (None: sigma is 0).
        """
        self._load(tensors, records)
        out = {}
        for name, total in zip(self.phase.trains, self._sums(records), strict=True):
            rows = self._rows if self._is_table(name) else None
            out[name] = self._whole(total / self.planned, tensors[name], rows, noise)
        return out

    def each(self, tensors: Tensors, records: Tensor) -> dict[str, Tensor]:
        """Return every record's own gradient before the clip, [n, *shape] by name; of tables the rows that are read."""
        self._load(tensors, records)
        return dict(zip(self.phase.trains, self._gradients(records), strict=True))

    def _load(self, tensors: Tensors, records: Tensor) -> None:
        rows = self._rows = records.unique()
        self._read = {n: (tensors[n][rows] if self._is_table(n) else tensors[n]).detach() for n in self.phase.uses}

    def _sums(self, records: Tensor) -> list[Tensor]:
        """Return the sum of the records' clipped gradients, of every tensor: float64."""
        trains = [self._read[name] for name in self.phase.trains]
        sums = [torch.zeros_like(value, dtype=torch.float64) for value in trains]
        for part in records.split(max(1, AT_ONCE // max(FLOAT * sum(value.numel() for value in trains), 1))):
            gradients = [found.double() for found in self._gradients(part)]
            norms = torch.stack([found.reshape(len(part), -1).norm(dim=1) for found in gradients]).norm(dim=0)
            factors = factors_by(torch, norms, self.clip)
            sums = [total + torch.tensordot(factors, found, 1) for total, found in zip(sums, gradients, strict=True)]
        return sums

    def _gradients(self, records: Tensor) -> list[Tensor]:
        """Return every record's gradient, of every tensor; what is not finite in them counts as 0."""

        def loss(trains: Tensors, record: Tensor, places: Tensor) -> Tensor:
            batch = batch_of(record.unsqueeze(0), places.unsqueeze(0))
            return self.program.loss({**self._read, **trains}, batch, self.phase)

        trains = {name: self._read[name] for name in self.phase.trains}
        places = torch.searchsorted(self._rows, records)
        with torch.no_grad():  # the gradients need none of their own
            found = vmap(grad(loss), in_dims=(None, 0, 0))(trains, records, places)
        return [found[name].nan_to_num(0.0, 0.0, 0.0) for name in self.phase.trains]

    def _whole(self, mean: Tensor, like: Tensor, rows: Tensor | None, noise: NoiseStream | None) -> Tensor:
        """Return the noised gradient of a whole tensor; `rows` of a table were read, and others have noise alone."""
        drawn = np.zeros(tuple(like.shape))
        if self.sigma:
            law = Noise("gaussian", self.sigma * self.clip / self.planned)
            drawn = law.of_sum(1, drawn.shape, cast(NoiseStream, noise))
        out = torch.from_numpy(drawn).to(mean.device)
        return (out + mean if rows is None else out.index_add_(0, rows, mean)).to(like.dtype)

    def _is_table(self, name: str) -> bool:
        return self.program.specs[name].kind == "rows"


def batch_of(records: Tensor, places: Tensor | None = None) -> One:
    """Return records [n, 1 + k] as a batch of one client, whose loss is their mean; `places` index its rows.

    >>> batch_of(torch.tensor([[7, 1, 2]])).label.tolist()
    [1.0, 0.0, 0.0]
    """
    label = torch.zeros(records.shape, device=records.device)
    label[:, 0] = 1.0
    flat, weight = records.flatten(), torch.full(label.shape, 1.0 / records.numel(), device=records.device)
    return One(flat if places is None else places.flatten(), flat, label.flatten(), weight.flatten())


def records_of(sampler: Sampler, client: int, purpose: str, *path: int) -> npt.NDArray[np.int64]:
    """Return a client's records of an epoch in keyed order, [n, 1 + negatives]: each interaction once, its item first.

    Negatives are uniform over the pool without the record's own item; avoiding all of the client's items, as
    `Sampler.epoch` does, would make examples depend on each other.
    """
    positives = sampler.train[client].astype(np.int64)
    chosen, sorted_by = (
        keyed.fold(keyed.key(sampler.seed, purposes.records(purpose, what), *path), client)
        for what in ("negatives", "order")
    )
    last = len(sampler.pool) - 1
    index = np.arange(len(positives) * sampler.negatives)
    drawn = sampler.pool[keyed.integers(chosen, index, max(last, 1))].reshape(len(positives), sampler.negatives)
    drawn = np.where(drawn == positives[:, None], sampler.pool[last], drawn)  # the last item's turn comes this way
    order = np.argsort(keyed.bits(sorted_by, np.arange(len(positives))), kind="stable")
    return np.concatenate([positives[:, None], drawn], axis=1)[order]


def planned_records(sampler: Sampler) -> int:
    return max(1, sampler.batch_size // (1 + sampler.negatives))


def _train(
    sampler: Sampler, round_: int, tensors: dict[str, Tensor], steps: PrivateSteps, client: int, noise: NoiseStream
) -> None:
    phase = steps.phase
    tensors.update({name: tensors[name].clone() for name in phase.trains})
    optimiser = Optimiser.of(phase, lambda name: tensors[name].shape)
    for done, records in enumerate(_batches(sampler, round_, phase, client), 1):
        gradients = steps.step(tensors, torch.from_numpy(records).to(steps.device), noise)
        with torch.no_grad():
            for name, gradient in gradients.items():
                optimiser.step(name, tensors[name], gradient, np.array(done))


def _batches(sampler: Sampler, round_: int, phase: Phase, client: int) -> Iterator[npt.NDArray[np.int64]]:
    size = planned_records(sampler)
    for epoch in range(phase.epochs):
        records = records_of(sampler, client, phase.purpose, round_, epoch)
        yield from (records[at : at + size] for at in range(0, len(records), size))


def _updates(work: LocalWork, shared: Tensors, ended: list[dict[str, Tensor]]) -> Updates:
    """Return the updates of clients: every row of a table has changed."""
    dense: dict[str, Tensor] = {}
    rows: dict[str, RowUpdates] = {}
    for name in trained(work.program, work.phases, "shared"):
        changes = torch.stack([after[name] - shared[name] for after in ended])
        if work.program.specs[name].kind == "dense":
            dense[name] = changes
            continue
        clients, items = (torch.arange(n, device=changes.device) for n in changes.shape[:2])
        rows[name] = RowUpdates(
            items.repeat(len(clients)), clients.repeat_interleave(len(items)), changes.flatten(0, 1)
        )
    kept = trained(work.program, work.phases, "private")
    return Updates(dense, rows, {name: torch.stack([after[name] for after in ended]) for name in kept})


def plan_for(settings: PrivacySettings, program: LocalProgram, rounds: int) -> ExamplePlan | None:
    """Plan DP-SGD on the device for a run of `rounds` rounds; None for plain steps."""
    if settings.examples is None:
        return None
    return plan_examples(settings.examples, settings.delta, max(rounds, 1), uses_per_round(program))


def uses_per_round(program: LocalProgram) -> int:
    """Count how often a round uses an example: once in every epoch of every phase."""
    return sum(phase.epochs for phase in program.phases if phase.when == "round")


def largest_shard(program: LocalProgram, memory_mb: int) -> int:
    size = sum(program.specs[name].size for name in trained(program, program.phases, "shared"))
    return max(1, memory_mb * 2**20 // max(3 * FLOAT * size, 1))


def check_program(program: LocalProgram) -> None:
    """Raise `InputError` for a program whose examples depend on one another, or whose losses are not tried so."""
    if program.needs_history and program.window is None:
        raise InputError(
            "privacy.examples: a mean over the history makes every example depend on all of a client's interactions; "
            "use model.user_encoder=vector"
        )
    if program.transformer is not None:
        raise InputError("privacy.examples is not for clients that run a language model; use model.client=mlp")
    if isinstance(program, SessionProgram):
        raise InputError(f"privacy.examples protects single interactions, and {program.name} reads sessions: use fedmf")
    if any(phase.which != EVERYTHING or phase.alternates or phase.accumulates for phase in program.phases):
        raise InputError(f"privacy.examples is for phases that learn from single examples, and not {program.name}'s")
    for name, spec in program.specs.items():
        if spec.kind == "rows" and spec.place != "shared":
            raise InputError(f"privacy.examples: every row of a client's own table {name} would be noise; use fedmf")


def start_up_probe(program: LocalProgram, seed: int, negatives: int, device: torch.device) -> None:
    """Refuse a program whose clipped gradients would not be those of single examples, on four keyed records.

    In every phase the gradients of all at once are those of one after the other ("loop"), and the gradient of the
    program's own loss of the batch is their mean ("batch"): a loss of the batch's statistics fails it. Tensors are a
    little off their first values, since zeros would hide a wrong gradient. Raises `InputError`.
    """
    check_program(program)
    first = {**program.init_shared(seed), **{n: v[0] for n, v in program.init_private(seed, torch.arange(1)).items()}}
    tensors: dict[str, Tensor] = {}
    for name, value in first.items():
        draws = keyed.generator(seed, f"probe {name}").standard_normal(value.shape, dtype=np.float32)
        tensors[name] = (value + 0.1 * torch.from_numpy(draws)).to(device)
    items = [spec.shape[0] for spec in program.specs.values() if spec.kind == "rows"]
    items += [len(table) for table in program.frozen.values()]
    drawn = keyed.generator(seed, "probe").permutation(min(items, default=1))
    records = torch.from_numpy(np.resize(drawn, 4 * (1 + negatives))).view(4, -1).to(device)
    for phase in (phase for phase in program.phases if phase.when == "round" and phase.epochs):
        try:
            _probe(program, phase, tensors, records)
        except (RuntimeError, NotImplementedError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"privacy.examples cannot be kept for {program.name}, phase {phase.name}: its loss has no gradients of "
                f"single examples ({' '.join(str(error).split())[:200]})"
            ) from error


def _probe(program: LocalProgram, phase: Phase, tensors: Tensors, records: Tensor) -> None:
    def plain(some: Tensor) -> dict[str, Tensor]:
        leaves = {name: tensors[name].detach().requires_grad_() for name in phase.trains}
        loss = program.loss({name: leaves.get(name, tensors[name]) for name in phase.uses}, batch_of(some), phase)
        found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        tables = {name for name in leaves if program.specs[name].kind == "rows"}
        return {n: g[records.unique()] if n in tables else g for n, g in zip(leaves, found, strict=True)}

    who = f"{program.name}, phase {phase.name}"
    alone = [plain(record) for record in records.split(1)]
    stacked = {name: torch.stack([found[name] for found in alone]) for name in phase.trains}
    whole = max(float(value.abs().max()) for value in stacked.values())
    if not 0 < whole < float("inf"):  # false for NaN
        raise InputError(f"privacy.examples cannot be probed for {who}: its gradients are zeros or not finite")
    at_once = PrivateSteps(program, phase, 1.0, 0.0, len(records), records.device).each(tensors, records)
    means = {name: value.mean(0) for name, value in stacked.items()}
    for question, found, expected in (("loop", at_once, stacked), ("batch", plain(records), means)):
        for name, value in expected.items():
            off = float((found[name] - value).abs().max()) / (float(stacked[name].abs().max()) or whole)
            if not off <= TOLERANCE:  # true for NaN
                raise InputError(
                    f"privacy.examples cannot be kept for {who}: tensor {name} fails probe '{question}', its gradient "
                    f"is off by {off:.2g} of the largest value; use another method, or drop privacy.examples"
                )
