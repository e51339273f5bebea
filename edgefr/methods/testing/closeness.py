"""Two computations of the same numbers agree up to rounding: this is one bound for every check that compares results.

Processors add in lanes of other widths, so the bounds are derived and not found by trying:

- **Rounding is relative to what is added, not to what comes out.** An operation is right to u times its own result
  (u = 2^-24 in float32, 2^-53 in float64), and an entry near zero is often the difference of large terms. So a bound is
  relative to the largest value that was added (`size`), and what operations in a row pile up is below `ROUNDINGS` u.
- **SGD amplifies nothing**: a step is the gradient times a constant.
- **Adam divides a gradient g by its own length.** Where g is nothing but rounding a step is up to lr, in any direction,
  and two right results differ by up to 2 `adam` = 2 lr x steps. In float64 at most `ROUNDINGS` u / eps = 1.4e-6 of a
  step is wrong, so the simulator is compared with itself in float64. Where float32 is the point, entries agree to
  `REGULAR` of `adam`, but for one of `STRAY`, whose gradient is too small; a fault moves nearly all by far more.
- **A step that overshoots amplifies everything**, so cases are chosen whose values stay what they are in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edge.optimiser import EPSILON
from export.program import Phase

ROUNDINGS = 128
"""Roundings in a row, all of the same sign, that a bound lets pass: 7.6e-6 of the size in float32."""
REGULAR, STRAY = 1e-4, 100
"""Of float32 after Adam: the share of its way that every entry is right to, but for one entry of so many."""

Array = torch.Tensor | npt.NDArray[np.floating]


def assert_same(
    found: Array,
    expected: Array,
    *,
    size: float = 0.0,
    adam: float = 0.0,
    inputs: torch.dtype = torch.float64,
    name: str = "",
) -> None:
    """Fail unless both arrays are the same but for rounding; the docstring of this module argues the bounds.

    `size`: of the largest value that was added on the way, where that is larger than all of `expected`. `adam`: how
    far Adam may have taken a value, learning rate times steps; 0 where SGD or nothing was trained. `inputs`: the type
    of a number that was rounded to it on the way, where that is coarser than the arrays' own: a few roundings of it
    count too. The coarser type of the two arrays counts. Entries that are not finite have to be the same.
    """
    a, b = (torch.as_tensor(value).detach().cpu() for value in (found, expected))
    assert a.shape == b.shape, f"{name}: shape {tuple(a.shape)} instead of {tuple(b.shape)}"
    if not a.numel():
        return
    u = max(torch.finfo(value.dtype).eps for value in (a, b)) / 2
    size = max(size, float(torch.where(b.isfinite(), b, 0.0).abs().max()))
    difference = torch.where(a == b, 0.0, (a.double() - b.double()).abs())
    relative = max(ROUNDINGS * u, 4 * torch.finfo(inputs).eps)
    allowed = relative * size + adam * min(REGULAR, ROUNDINGS * u / EPSILON)
    beyond = int((~(difference <= allowed)).sum())  # what is no number is beyond any bound
    strays = a.numel() // STRAY if adam and ROUNDINGS * u > EPSILON else 0
    words = f"{name or 'values'}: {beyond} of {a.numel()} entries differ by more than rounding, the worst by "
    words += f"{float(difference.nan_to_num(torch.inf).max()):.3g} where {allowed:.3g} is allowed "
    words += f"(values up to {size:.3g}, u = {u:.1g})"
    assert beyond <= strays, words
    assert bool((difference <= allowed + 2 * adam).all()), words


def assert_all_same(found: Mapping[str, Array], expected: Mapping[str, Array], **bounds: Any) -> None:
    """`assert_same` of every array of two mappings with the same names."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert_same(found[name], value, name=name, **bounds)


def after_training(phases: Iterable[Phase], steps: int, *tensors: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Return bounds of what `steps` steps of these phases make of `tensors`: their `size`, and how far Adam may go."""
    largest = max(float(value.abs().max()) for some in tensors for value in some.values() if value.numel())
    rates = [rate for phase in phases if phase.optimiser != "sgd" for rate in phase.lr.values()]
    return {"size": largest, "adam": steps * max(rates, default=0.0)}
