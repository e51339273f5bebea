"""The cost model against published latencies that nothing was fitted to: a table, the mean error, rank correlation.

    python benchmarks/devices.py [--devices devices.yaml]

Predictions are `edgefr.fleet.cost.inference_seconds` with the figures of the class named in `anchors.yaml`, or of the
very processor where no class is near. The aim is a rank correlation of 0.9 and a mean absolute error of 50 %.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text
from scipy.stats import spearmanr

from edgefr.config.documents import Document
from edgefr.config.sheet import Sheet
from edgefr.fleet import FleetFile, cost, load_fleet
from privacy.errors import InputError

ANCHORS = Path(__file__).parent / "anchors.yaml"
FLOAT = 4
RHO, MAPE = 0.9, 0.5  # the aim


@dataclass(frozen=True)
class Anchor:
    """One published figure beside the model's: milliseconds, or a ratio."""

    name: str
    predicted_by: str
    published: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative error, signed."""
        return self.predicted / self.published - 1.0


def flops_of(model: dict[str, Any]) -> float:
    """Operations of one forward pass, counted from an entry of `models`.

    >>> flops_of({"layers": 2, "width": 4, "tokens": 3, "matmul_weights": 100})
    888.0
    """
    if "flops" in model:
        return float(model["flops"])
    attention = 4.0 * model["tokens"] ** 2 * model["width"] * model["layers"]
    return 2.0 * model["tokens"] * model["matmul_weights"] + attention


def milliseconds(model: dict[str, Any], rate: float, copy_gbs: float, weight_bytes: float) -> float:
    """The cost model's latency of a forward pass."""
    return 1e3 * float(cost.inference_seconds(flops_of(model), weight_bytes * float(model["weights"]), rate, copy_gbs))


def latencies(data: dict[str, Any], spec: FleetFile) -> list[Anchor]:
    """The anchors in milliseconds."""
    out = []
    for entry in data["latencies"]:
        rate, copy_gbs, whose = _rates(entry, data, spec)
        size = 1 if entry.get("int8") else FLOAT
        found = milliseconds(data["models"][entry["model"]], rate, copy_gbs, size)
        out.append(Anchor(entry["name"], whose, float(entry["ms"]), found))
    return out


def ratios(data: dict[str, Any], spec: FleetFile) -> list[Anchor]:
    """The anchors that are ratios of two times; published ranges by their middle."""
    out = []
    for entry in data["ratios"]:
        low, high = entry["ratio"]
        out.append(
            Anchor(entry["name"], entry.get("device", "added figures"), (low + high) / 2, _ratio(entry, data, spec))
        )
    return out


def _ratio(entry: dict[str, Any], data: dict[str, Any], spec: FleetFile) -> float:
    if "slow" in entry:  # two processors, one model
        model, figures = data["models"][entry["model"]], data["figures"]
        slow, fast = (
            milliseconds(model, figures[entry[k]]["fp32_gflops"], figures[entry[k]]["copy_gbs"], FLOAT)
            for k in ("slow", "fast")
        )
        return slow / fast * entry["clocks"]
    device = spec.devices[entry["device"]]
    if "of" in entry:  # two types of number on one processor: the same operations at two rates
        first, second = (getattr(device.compute, name) for name in entry["of"])
        if first is None or second is None:
            raise InputError(
                f"class {entry['device']} lacks one of {', '.join(entry['of'])}; name another in {ANCHORS}"
            )
        return first.v / second.v
    rate, copy_gbs = device.compute.fp32_gflops.v, device.memory.copy_gbs.v
    large, small = (milliseconds(data["models"][name], rate, copy_gbs, FLOAT) for name in entry["models"])
    return large / small


def _rates(entry: dict[str, Any], data: dict[str, Any], spec: FleetFile) -> tuple[float, float, str]:
    """(GFLOP/s or GOP/s, copy GB/s, whose figures they are)."""
    if "figures" in entry:
        added = data["figures"][entry["figures"]]
        return added["fp32_gflops"], added["copy_gbs"], f"added: {entry['figures']}"
    device = spec.devices[entry["device"]]
    rate = device.compute.int8_gops if entry.get("int8") else device.compute.fp32_gflops
    return rate.v, device.memory.copy_gbs.v, entry["device"]


def mean_error(anchors: list[Anchor]) -> float:
    """Mean absolute relative error."""
    return float(np.mean([abs(anchor.error) for anchor in anchors]))


def rank_correlation(anchors: list[Anchor]) -> float:
    """Spearman's, of published and predicted."""
    return float(spearmanr([a.published for a in anchors], [a.predicted for a in anchors]).statistic)


def table(title: str, anchors: list[Anchor], unit: str) -> Sheet:
    """One row per anchor."""
    rows = [
        {
            "anchor": a.name,
            f"published{unit}": f"{a.published:.4g}",
            f"model{unit}": f"{a.predicted:.4g}",
            "error": f"{a.error:+.0%}",
            "figures of": a.predicted_by,
        }
        for a in anchors
    ]
    return Sheet(title, rows, words=["anchor", "figures of"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=Path, default=Path("devices.yaml"))
    data, spec = Document.read(ANCHORS).values, load_fleet(parser.parse_args().devices)
    times, relations, console = latencies(data, spec), ratios(data, spec), Console()
    console.print(table("latencies", times, " ms"))
    console.print(table("ratios", relations, ""))
    for entry in data["excluded"]:
        console.print(Text(f"left out: {entry['name']}: {entry['why']}"), soft_wrap=True)
    rho, error, both = rank_correlation(times), mean_error(times), mean_error([*times, *relations])
    console.print(
        f"latencies: rank correlation {rho:.2f} (aim {RHO}), mean absolute error {error:.0%} (aim {MAPE:.0%}); "
        f"with ratios {both:.0%}",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
