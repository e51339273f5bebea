"""Before DP-SGD starts a probe checks that it gets the clipped gradients of single examples.

Hooks or functorch can be wrong without an error: a tensor read past its layer, layers that share a tensor, statistics
of a batch. Three questions on a few examples, without noise:

- "single": a step of one example alone is its plain gradient, cut to a tiny clip;
- "loop": the gradients of all examples at once are those of one example after the other;
- "batch": the gradient of the program's own loss of the batch is the mean of those of its examples.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from privacy.errors import InputError

Gradients = dict[str, Tensor]
TOLERANCE = 1e-5
"""Of a difference, relative to the largest value of the tensor's gradient over all examples."""
SLACK = 1e-3
"""Of the length of a clipped step: opacus's own optimisers add a millionth to the norms they divide by."""
TINY = 1e-3
"""The clip of the first question, relative to the example's own norm."""


class Probed(Protocol):
    def step(self, records: Tensor, clip: float) -> Gradients:
        """Return the mean of the records' gradients, each clipped to `clip`: what DP-SGD does, without its noise."""
        ...

    def each(self, records: Tensor) -> Gradients | None:
        """Return every record's own gradient [n, *shape]; None where it is never formed (ghost clipping)."""
        ...

    def plain(self, records: Tensor) -> Gradients: ...


def probe(name: str, model: Probed, records: Tensor) -> None:
    """Ask `model` the three questions; raise `InputError` naming the tensor and the failed question.

    Where single gradients are never formed, "loop" compares the mean of unclipped records.
    """
    try:
        alone = [model.plain(records[i : i + 1]) for i in range(len(records))]
        stacked = {tensor: torch.stack([found[tensor] for found in alone]) for tensor in alone[0]}
        norms = torch.stack([v.double().flatten(1).norm(dim=1) for v in stacked.values()]).norm(dim=0)
        if not bool(torch.isfinite(norms).all()) or not bool((norms > 0).any()):
            raise InputError(f"privacy.examples cannot be probed for {name}: its gradients are zeros or not finite")
        _single(name, model, records, stacked, norms)
        _loop(name, model, records, stacked, norms)
        mean = {tensor: value.mean(0) for tensor, value in stacked.items()}
        _same(name, "batch", model.plain(records), mean, stacked)
    except (RuntimeError, NotImplementedError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"privacy.examples cannot be kept for {name}: opacus does not take it ({reason})") from error


def _single(name: str, model: Probed, records: Tensor, stacked: Gradients, norms: Tensor) -> None:
    for i in range(len(records)):
        if not norms[i] > 0:
            continue
        clip = TINY * float(norms[i])
        found = model.step(records[i : i + 1], clip)
        expected = {tensor: value[i] * (clip / norms[i]).to(value) for tensor, value in stacked.items()}
        length = float(torch.stack([value.detach().double().norm() for value in found.values()]).norm())
        if length > clip * (1 + SLACK):
            worst = max(found, key=lambda tensor: _off(found[tensor], expected.get(tensor), 1.0))
            raise _refused(name, worst, "single", f"a step is {length / clip:.3g} times the clip")
        _same(name, "single", found, expected, expected, SLACK)


def _loop(name: str, model: Probed, records: Tensor, stacked: Gradients, norms: Tensor) -> None:
    found = model.each(records)
    if found is not None:
        _same(name, "loop", found, stacked, stacked)
        return
    mean = {tensor: value.mean(0) for tensor, value in stacked.items()}
    _same(name, "loop", model.step(records, 1e3 * float(norms.max())), mean, stacked)


def _same(
    name: str, question: str, found: Gradients, expected: Gradients, scale: Gradients, tolerance: float = TOLERANCE
) -> None:
    """Refuse the first tensor whose gradient is not the expected one, up to the largest value in `scale`."""
    whole = max(float(value.abs().max()) for value in scale.values())
    for tensor, value in expected.items():
        largest = float(scale[tensor].abs().max()) or whole
        off = _off(found.get(tensor), value, largest)
        if not off <= tolerance:  # true for NaN
            raise _refused(name, tensor, question, f"its gradient is off by {off:.2g} of the largest value")


def _off(found: Tensor | None, expected: Tensor | None, scale: float) -> float:
    if found is None or expected is None:
        return float("inf")
    return float((found.detach() - expected).abs().max()) / scale


def _refused(name: str, tensor: str, question: str, why: str) -> InputError:
    return InputError(
        f"privacy.examples cannot be kept for {name}: tensor {tensor} fails probe '{question}', {why}; "
        "use another method, or drop privacy.examples"
    )
