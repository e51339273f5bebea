"""Two computations of the same numbers agree up to rounding: this is one bound for every check that compares results.

Two programs that are equal on paper (a shard and a loop over its clients, one shard and many, a device and the
simulator, a sum in two orders) differ in the last digits, and how many digits depends on the processor: AVX2 and
AVX-512 add in lanes of other widths. A bound that is a number found by trying is right on the machine it was tried on.
These are derived, from what is known without trying:

- **Rounding is relative to what is added, not to what comes out.** Every operation is right to u times its own result
  (u = 2^-24 in float32, 2^-53 in float64), and an entry near zero is often the difference of large terms. So a bound is
  relative to the largest value of the *tensor* (`size`), never to the single entry; and where a change is compared,
  new minus old, `size` is that of the values it was taken from. What a few hundred operations in a row pile up stays
  below `ROUNDINGS` u: signs differ, so errors grow as the root of their number.
- **SGD amplifies nothing.** A step is the gradient times a constant, its rounding with it: still relative to the size.
- **Adam divides a gradient g by its own length**: its first step is lr g / (|g| + eps). Where g is itself nothing but
  what rounding left of zero, the step is up to lr, this way on one processor and that way on another, and so is every
  next one: after `adam` = lr x steps two right results differ by up to 2 `adam`. In float64 that cannot happen: what
  rounding leaves is far below eps = 1e-8, and at most `ROUNDINGS` u / eps = 1.4e-6 of a step is wrong. **So tests of
  the simulator against itself train in float64**: their bounds are tighter and need no exception. Where float32 is the
  point (other runtimes train in nothing else), a step is wrong by more than a share r of itself where |g| is below a
  few u / r of the largest gradient: of gradients spread evenly one in a hundred, at r = 1e-4. So entries agree to
  `REGULAR` of `adam`, but for one of `STRAY`, which differs by no more than Adam can go. A fault (a wrong correction of
  the bias, a term or an example left out) moves nearly all entries by far more.
- **A step that overshoots amplifies everything**: values that run away take what rounding left along, and a tensor of
  1e16 hides any fault in its other entries. Cases are to be chosen so that values stay what they are in use.
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
