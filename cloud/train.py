"""One resumable training loop serves distillation and pre-training.

A step's result depends on nothing but the parameters, the optimiser's state and the number of the step, so a
run that was killed and resumed ends with the same weights as one that was not.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from privacy import keyed
from privacy.errors import InputError
from privacy.files import write_atomic
from privacy.progress import Progress

Loss = Callable[[int], tuple[Tensor, Mapping[str, Tensor]]]

CHECKPOINT_SECONDS = 30.0
MOST_THREADS = 4


@contextmanager
def few_threads() -> Iterator[None]:
    """Keep to half the cores and at most four threads, unless OMP_NUM_THREADS says how many.

    Threads wait for the slowest of them after every product: as many as cores stand still where others compute too.
    """
    before = torch.get_num_threads()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(MOST_THREADS, before // 2)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def seeded(seed: int, purpose: str, *path: int) -> Iterator[None]:
    """Make what torch draws inside depend on the key alone; outside, its state is as before.

    >>> with seeded(0, "example"):
    ...     first = torch.rand(3)
    >>> with seeded(0, "example"):
    ...     bool((torch.rand(3) == first).all())
    True
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(keyed.key(seed, purpose, *path) >> 1)
        yield


@dataclass(frozen=True)
class TrainingSchedule:
    """This is `steps` of Adam with `accumulate` batches each; `lr` rises for `warmup` steps, then falls to 0."""

    steps: int
    lr: float
    warmup: int
    accumulate: int = 1

    def lr_at(self, step: int) -> float:
        """Return the learning rate of a step (0, 1, ..., steps - 1)."""
        if step < self.warmup:
            return self.lr * (step + 1) / (self.warmup + 1)
        return self.lr * (self.steps - step) / max(1, self.steps - min(self.warmup, self.steps - 1))


def train(
    stage: str,
    parameters: Mapping[str, nn.Parameter],
    loss: Loss,
    plan: TrainingSchedule,
    checkpoint: Path,
    progress: Progress | None = None,
) -> int:
    """Train `parameters` in place, from `checkpoint` if it exists; returns the step it started from.

    `loss(i)` gives the loss of the i-th batch of the run and its terms by name. A checkpoint is written every
    `CHECKPOINT_SECONDS`. Raises `InputError` when the loss is no longer a number or the checkpoint is damaged.
    """
    optimiser = torch.optim.Adam(list(parameters.values()), lr=plan.lr, fused=True)
    first = _restore(checkpoint, parameters, optimiser) if checkpoint.exists() else 0
    saved = time.monotonic()
    for step in range(first, plan.steps):
        for group in optimiser.param_groups:
            group["lr"] = plan.lr_at(step)
        total = 0.0
        terms: Mapping[str, Tensor] = {}
        for part in range(plan.accumulate):
            value, terms = loss(step * plan.accumulate + part)
            (value / plan.accumulate).backward()  # type: ignore[no-untyped-call]
            total += float(value.detach())
        if not math.isfinite(total):
            raise InputError(f"{stage}: the loss is no longer a number after {step} steps; use a lower learning rate")
        nn.utils.clip_grad_norm_(list(parameters.values()), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        if progress is not None:
            progress(stage, step + 1, plan.steps, note(terms))
        if time.monotonic() - saved >= CHECKPOINT_SECONDS and step + 1 < plan.steps:
            _store(checkpoint, parameters, optimiser, step + 1)
            saved = time.monotonic()
    return first


def note(terms: Mapping[str, Tensor]) -> str:
    """Write loss terms as one line.

    >>> note({"attention": torch.tensor(0.01234), "embedding": torch.tensor(0.5)})
    'attention 0.01234  embedding 0.5'
    """
    return "  ".join(f"{name} {float(value):.4g}" for name, value in terms.items())


def _store(path: Path, parameters: Mapping[str, nn.Parameter], optimiser: torch.optim.Optimizer, step: int) -> None:
    tensors: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        tensors[f"parameter/{name}"] = parameter.detach().contiguous()
        for kind in ("exp_avg", "exp_avg_sq"):
            if kind in optimiser.state[parameter]:  # absent where no term of the loss reaches a parameter
                tensors[f"{kind}/{name}"] = optimiser.state[parameter][kind].contiguous()
    write_atomic(path, safetensors.torch.save(tensors, {"state": json.dumps({"step": step})}))


def _restore(path: Path, parameters: Mapping[str, nn.Parameter], optimiser: torch.optim.Optimizer) -> int:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            step = int(json.loads(file.metadata()["state"])["step"])
            for name, parameter in parameters.items():
                with torch.no_grad():
                    parameter.copy_(file.get_tensor(f"parameter/{name}"))
                optimiser.state[parameter] = {
                    "step": torch.tensor(float(step), device=parameter.device),
                    **{k: file.get_tensor(f"{k}/{name}").to(parameter.device) for k in ("exp_avg", "exp_avg_sq")},
                }
    except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"the checkpoint {path} is damaged; delete it and run again") from error
    return step
