"""This counts what a round asks of a device, from the program's own tensors: operations, memory and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge.sampling import EVERYTHING, Sampler
from edge.sessions import SessionSampler
from edgefr.engine.aggregate import released_values
from edgefr.engine.optimisers import RULES
from edgefr.engine.work import Clients
from edgefr.fleet import Work
from edgefr.fleet.cost import transformer_activation_bytes, transformer_forward_flops
from export.program import LocalProgram, Phase, read_by

FLOAT, HALF = 4, 2
"""Bytes of a value: tensors travel and train as float32, frozen tables lie on the device as float16."""

PASSES = 2.0
"""What a step of frozen layers takes, in forward passes: no weight of theirs has a gradient."""

LARGEST_SHARD = 1024


def round_work(
    program: LocalProgram,
    phases: Sequence[Phase],
    sampler: Sampler | SessionSampler,
    cohort: Clients,
    newcomers: npt.NDArray[np.bool_],
    project: int | None = None,
    told: tuple[int, int] = (0, 0),
) -> Work:
    """Count the work of one round for every client of `cohort` [C]; `newcomers` [C] also fetch the frozen tables.

    Whole shared tensors travel both ways, since touched rows would reveal a user's items. `project`: values of a
    projected upload. `told`: values of a message beside the update, and of its answer.
    """
    examples = sampler.train.counts[cohort] * (1 + sampler.negatives)
    travel = Travel.of(program, project, told)
    none = np.zeros(len(cohort), np.int64)
    epochs = [(phase.epochs, *_epoch(sampler, cohort, phase)) for phase in phases]
    steps = sum((count * np.maximum(each, 1) for count, _, each in epochs), none)
    read = sum((count * examples for count, examples, _ in epochs), none)
    history = sampler.train.counts[cohort] if program.needs_history else 0  # read again at every step
    frozen = frozen_bytes(program)
    return Work(
        steps=steps,
        examples_per_step=read / steps + history,
        flops_per_example=flops_per_example(program, phases) + reading_flops(program, phases),
        trained_parameters=_trained(program, phases, examples),
        resident_parameters=sum(spec.size for spec in program.specs.values()) + frozen / FLOAT,
        activation_bytes=activation_bytes(program, sampler.batch_size)
        + reading_bytes(program, np.minimum(sampler.batch_size, examples) + history),
        bytes_down=travel.down + travel.once * newcomers,
        bytes_up=travel.up,
        message_bytes=FLOAT * told[0],
        optimiser="adam" if phases and RULES[phases[0].optimiser].moments else "sgd",  # what its traffic is like
        passes=3.0 if program.transformer is None else PASSES,  # nearly all of it is a frozen encoder's
        width=max(spec.shape[-1] for spec in program.specs.values()),
    )


@dataclass(frozen=True)
class Travel:
    """These are the bytes that a client moves: `once`, before its first round, and `down` and `up` in every round."""

    once: float
    down: int
    up: int

    @classmethod
    def of(cls, program: LocalProgram, project: int | None = None, told: tuple[int, int] = (0, 0)) -> Travel:
        """Count them; arguments as in `round_work`."""
        down, up = fetched_values(program) + told[1], released_values(program, project) + told[0]
        return cls(frozen_bytes(program), FLOAT * down, FLOAT * up)


def _epoch(sampler: Sampler | SessionSampler, cohort: Clients, phase: Phase) -> tuple[Clients, Clients]:
    """Return how many examples and how many steps an epoch of a phase has for each client of `cohort` [C]."""
    if phase.which == EVERYTHING:
        return sampler.train.counts[cohort] * (1 + sampler.negatives), sampler.steps(cohort)
    assert isinstance(sampler, Sampler)
    return sampler.examples(cohort, phase.which), sampler.steps(cohort, phase.which)


def flops_per_example(program: LocalProgram, phases: Sequence[Phase]) -> float:
    """Count the operations of one forward pass of one example, without a language model's (`reading_flops`)."""
    used = read_by(phases)
    return float(
        sum(
            2 * (spec.size if spec.kind == "dense" else spec.shape[-1])
            for n, spec in program.specs.items()
            if n in used
        )
    )


def activation_bytes(program: LocalProgram, examples: int) -> float:
    """Count the bytes kept for the backward pass of a batch: every layer's output and the frozen inputs."""
    read = (spec for name, spec in program.specs.items() if name != program.reply)  # a reply is no example's
    widths = sum(spec.shape[-1] for spec in read) + sum(t.shape[-1] for t in program.frozen.values())
    return float(FLOAT * examples * widths)


def fetched_values(program: LocalProgram) -> int:
    """Count the values that a client fetches in a round: all that is shared, and what others send it."""
    return sum(spec.size for spec in program.specs.values() if spec.place in ("shared", "received"))


def frozen_bytes(program: LocalProgram) -> float:
    """Count what a newcomer fetches once: tables (numbers of tokens as they are, others halved), a language model."""
    tables = sum(t.numel() * (HALF if t.is_floating_point() else t.element_size()) for t in program.frozen.values())
    model = program.transformer
    return float(tables + (0 if model is None else FLOAT * model.parameters))


def reading_flops(program: LocalProgram, phases: Sequence[Phase]) -> float:
    """Count the operations of reading one example's text, beyond the first token's share of common tensors.

    0 where the phases do not train what reads, since texts are read once before. Layers under the trained ones have no
    backward pass, and count once for every example, which is an upper estimate.
    """
    model = program.transformer
    if model is None or not {name for phase in phases for name in phase.trains} & set(model.per_token):
        return 0.0
    layers = model.layers + model.below / PASSES
    forward = transformer_forward_flops(1, model.hidden, model.feed_forward, model.tokens) * layers
    return forward + 2.0 * (model.tokens - 1) * sum(program.specs[name].size for name in model.per_token)


def reading_bytes(program: LocalProgram, examples: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Count a language model's activation bytes for `examples` [...]: twice what torch keeps, as at a step's peak."""
    model, number = program.transformer, np.asarray(examples, dtype=np.float64)
    if model is None:
        return np.zeros_like(number)
    return number * transformer_activation_bytes(model.layers, model.hidden, model.heads, 1, model.tokens)


def _trained(program: LocalProgram, phases: Sequence[Phase], examples: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Parameters a client trains: whole dense tensors, and of tables at most one row per example."""
    total = np.zeros(len(examples), np.int64)
    for name in {name for phase in phases for name in phase.trains}:
        spec = program.specs[name]
        total += spec.size if spec.kind == "dense" else np.minimum(spec.shape[0], examples) * spec.shape[1]
    return total


def default_shard_size(program: LocalProgram, batch_size: int, memory_mb: int) -> int:
    """Return how many clients a call takes for about `memory_mb` of values, gradients, moments and activations."""
    dense = sum(spec.size for spec in program.specs.values() if spec.kind == "dense")
    rows = sum(spec.shape[1] for spec in program.specs.values() if spec.kind == "rows") * batch_size
    read = batch_size * (2 if program.needs_history else 1)  # titles: those of the past too, taken for as many again
    per_client = FLOAT * 5 * (dense + rows) + 3 * activation_bytes(program, batch_size) + reading_bytes(program, read)
    return int(np.clip(memory_mb * 2**20 / float(per_client), 1, LARGEST_SHARD))
