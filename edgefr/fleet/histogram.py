"""Counts and spreads are held per device class, in space that does not grow with rounds."""

from typing import Any

import numpy as np
import numpy.typing as npt

QUANTITIES = ("seconds", "energy_j", "bytes_down", "bytes_up", "memory_mb")
_BINS = 4096
_LOW, _HIGH = np.log(1e-6), np.log(1e13)  # bins are 1.1 % wide: no quantile is off by more


class Histogram:
    """Histograms (on a log scale) and outcome counts of rounds.

    `outcomes` [classes, kinds] counts invitations; `totals` [classes, quantities] are exact sums.
    """

    def __init__(self, classes: int, kinds: int) -> None:
        self.outcomes = np.zeros((classes, kinds), dtype=np.int64)
        self.totals = np.zeros((classes, len(QUANTITIES)))
        self._counts = np.zeros((len(QUANTITIES), classes, _BINS), dtype=np.int64)
        self._sums = np.zeros((len(QUANTITIES), classes, _BINS))

    def outcome(self, device: npt.NDArray[np.uint16], kind: npt.NDArray[np.uint8]) -> None:
        """Count invitations [C] by class and by how they ended."""
        np.add.at(self.outcomes, (device, kind), 1)

    def add(self, quantity: str, device: npt.NDArray[np.uint16], values: npt.NDArray[np.float64]) -> None:
        """Count values [C] of one quantity, not negative."""
        row = QUANTITIES.index(quantity)
        classes = self.outcomes.shape[0]
        self.totals[:, row] += np.bincount(device, weights=values, minlength=classes)
        with np.errstate(divide="ignore"):
            place = (np.log(values) - _LOW) / (_HIGH - _LOW) * (_BINS - 1)
        # Bin 0 is for zero and what is as good as zero.
        index = np.clip(np.ceil(place), 0, _BINS - 1).astype(np.int64)
        flat = device.astype(np.int64) * _BINS + index
        size, shape = classes * _BINS, (classes, _BINS)
        self._counts[row] += np.bincount(flat, minlength=size).reshape(shape)
        self._sums[row] += np.bincount(flat, weights=values, minlength=size).reshape(shape)

    def quantiles(self, quantity: str, device: int | None = None) -> dict[str, float | None]:
        """Return p10, p50 and p90 of one class, or of all; None where nothing was counted."""
        chosen = slice(None) if device is None else slice(device, device + 1)
        row = QUANTITIES.index(quantity)
        counts, sums = self._counts[row, chosen].sum(axis=0), self._sums[row, chosen].sum(axis=0)
        total = int(counts.sum())
        if total == 0:
            return {"p10": None, "p50": None, "p90": None}
        index = np.searchsorted(np.cumsum(counts), np.ceil(np.array([0.1, 0.5, 0.9]) * total))
        means = sums[index] / counts[index]
        return {name: float(f"{v:.4g}") for name, v in zip(("p10", "p50", "p90"), means, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        return {
            "outcomes": self.outcomes.copy(),
            "totals": self.totals.copy(),
            "counts": self._counts.copy(),
            "sums": self._sums.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.outcomes, self.totals = state["outcomes"].copy(), state["totals"].copy()
        self._counts, self._sums = state["counts"].copy(), state["sums"].copy()
