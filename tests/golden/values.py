"""What one run came to, as few numbers, and what of them differs from numbers that were kept.

This file is also a program that runs on its own, so that another commit's code can be asked: jobs in, values out. Of
the code under test it needs no more than `edgefr.simulate` and the files of a run folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 1e-5
SHORTEST = 0.1
"""Length below which tensors are not told apart more finely: biases that have just begun to move."""
REFERENCES = (
    "before any round",
    "popularity",
    "chance",
    "seen",
    "all seen",
    "follows last item",
    "text mean",
    "hybrid",
    "TF-IDF mean",
    "item-kNN",
    "EASE",
)
Values = dict[str, Any]


NOISE_KEY = "000102030405060708090a0b0c0d0e0f"
"""Every case that draws noise draws it with this key."""


def run(overrides: list[str], folder: Path) -> Values:
    """Run an experiment in a folder of its own; the values of its results."""
    import edgefr

    experiment, keyed = edgefr.load_experiment(overrides=overrides), {}
    if getattr(experiment, "draws_noise", False):  # this also runs code from before noise had a key
        folder.parent.mkdir(parents=True, exist_ok=True)
        keyed["noise_key"] = folder.with_suffix(".key")
        keyed["noise_key"].write_text(NOISE_KEY)
    edgefr.simulate(experiment, out=folder, bundles=False, page=False, **keyed)
    return values_of(folder)


def values_of(folder: Path) -> Values:
    """The values of a finished run: tensors, final metrics, learning curve, releases, epsilons, simulated clock."""
    summary = json.loads((folder / "summary.json").read_text())
    log = folder / "events.jsonl"  # a central reference has no clock
    events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return {
        "tensors": {name: two_numbers(tensor) for name, tensor in tensors(folder).items() if learned(name)},
        "metrics": metrics(folder),
        "ledger": ledger(folder),
        "epsilon": {name: _short(value) for name, value in summary["privacy"].items() if name.startswith("eps_")},
        "clock": [len(events), short(max((event["time"] for event in events), default=0.0))],
    }


def tensors(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor that the run left, by file and name, e.g. `model/shared.item`."""
    from safetensors.numpy import load_file

    files = sorted((folder / "checkpoint").glob("*.safetensors"))
    return {f"{file.stem}/{name}": tensor for file in files for name, tensor in sorted(load_file(file).items())}


def learned(name: str) -> bool:
    """Whether a tensor is what was learned, not the data it was learned from."""
    file, name = name.split("/", 1)
    return file != "model" or name.split(".")[0] in ("shared", "private", "rows")


def two_numbers(tensor: np.ndarray) -> list[float]:
    """A tensor's length (L2 norm), and its part along a fixed random direction of length about 1.

    Rows of whole numbers are lists of items: sorted, for two that score alike change places by rounding.
    """
    if tensor.dtype.kind in "iu" and tensor.ndim == 2:
        tensor = np.sort(tensor, axis=-1)
    flat = np.nan_to_num(tensor.astype(np.float64), nan=-1.0).ravel()
    direction = np.random.default_rng(0).standard_normal(len(flat)) / max(1.0, len(flat) ** 0.5)
    return [short(float(np.linalg.norm(flat))), short(float(flat @ direction))]


def metrics(folder: Path) -> dict[str, list[float | str | None]]:
    """Metrics by the place they were measured at: every column that says where, one after another; sorted by name."""
    import pyarrow.parquet as pq

    found: dict[str, dict[str, float | None]] = {}
    for row in pq.read_table(folder / "metrics.parquet").to_pylist():
        metric, value = row.pop("metric"), row.pop("value")
        row.pop("users")
        place = ", ".join(f"{part}" for part in row.values() if part is not None)
        found.setdefault(place, {})[metric] = None if value is None or math.isnan(value) else short(value)
    names = sorted({name for values in found.values() for name in values})
    return {"names": list(names)} | {place: [of.get(name) for name in names] for place, of in found.items()}


def without_references(values: Values) -> Values:
    """The values but for metrics of what needs no learning: round 0 and references, which are the same on a split."""
    learned = {p: v for p, v in values["metrics"].items() if not p.endswith(", 0")}
    wanted = {p: v for p, v in learned.items() if not any(f", {word}" in p for word in REFERENCES)}
    return values | {"metrics": wanted}


def ledger(folder: Path) -> list[dict[str, Any]]:
    """What was released: per event its facts, releases and refusals, and a number that knows whose they were."""
    import pyarrow.parquet as pq

    if not (folder / "ledger.parquet").exists():
        return []
    found: dict[str, dict[str, Any]] = {}
    for row in pq.read_table(folder / "ledger.parquet").to_pylist():
        client, releases, refused = (row.pop(name) for name in ("client", "releases", "refused"))
        counts = found.setdefault(json.dumps(row), {**row, "releases": 0, "refused": 0, "whose": 0})
        counts["releases"] += releases
        counts["refused"] += refused
        counts["whose"] += (client + 1) ** 2 * (releases + 1000 * refused)
    return list(found.values())


def short(value: float) -> float:
    """A number of seven digits: more than are compared."""
    return float(f"{value:.7g}")


def _short(value: Any) -> Any:
    return short(value) if isinstance(value, float) else value


def differences(found: Any, kept: Any, at: str = "", within: float = TOLERANCE) -> list[str]:
    """What differs by more than `within` of a value's size, a line each; empty where all is the same."""
    if isinstance(kept, dict) and isinstance(found, dict):
        missing = [f"{at}/{key} is missing" for key in kept.keys() - found.keys()]
        new = [f"{at}/{key} is new" for key in found.keys() - kept.keys()]
        both = [key for key in kept if key in found]
        lines = [line for key in both for line in differences(found[key], kept[key], f"{at}/{key}", within)]
        return sorted(missing + new) + lines
    if isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        if at.startswith("/tensors/"):
            return _tensor_differs(found, kept, at, within)
        pairs = enumerate(zip(found, kept, strict=True))
        return [line for number, pair in pairs for line in differences(*pair, f"{at}/{number}", within)]
    if isinstance(kept, float) and isinstance(found, int | float):
        close = math.isclose(found, kept, rel_tol=within, abs_tol=within * 1e-3)
        return [] if close else [f"{at} is {found}, kept was {kept}"]
    return [] if found == kept else [f"{at} is {found}, kept was {kept}"]


def _tensor_differs(found: list[float], kept: list[float], at: str, within: float) -> list[str]:
    """Two numbers of a tensor are compared by the tensor's length, or by `SHORTEST`."""
    far = max(abs(a - b) for a, b in zip(found, kept, strict=True))
    return [] if far <= within * max(kept[0], SHORTEST) else [f"{at} is {found}, kept was {kept}"]


def bits_of(folder: Path) -> dict[str, Any]:
    """Digests of all a run left, bit for bit: tensors, ledger, clock; and the values of its metrics by size."""
    import pyarrow.parquet as pq

    found: dict[str, Any] = {f"tensor {name}": _digest(tensor) for name, tensor in tensors(folder).items()}
    if (folder / "events.jsonl").exists():
        found["events.jsonl"] = hashlib.sha256((folder / "events.jsonl").read_bytes()).hexdigest()[:16]
    values = [value for value in pq.read_table(folder / "metrics.parquet")["value"].to_pylist() if value is not None]
    found["metrics"] = sorted(float(value).hex() for value in values)
    if (folder / "ledger.parquet").exists():
        rows = sorted(json.dumps(row, sort_keys=True) for row in pq.read_table(folder / "ledger.parquet").to_pylist())
        found["ledger"] = hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]
    return found


def _digest(array: np.ndarray) -> str:
    head = f"{array.dtype} {array.shape}\n".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def main() -> None:
    """Jobs {case: overrides} on stdin; a line {"case": ..., "values": ..., "bits": ...} each on stdout."""
    for case, overrides in json.load(sys.stdin).items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "run"
            try:
                values = run(overrides, folder)
            except Exception as error:
                print(json.dumps({"case": case, "error": f"{type(error).__name__}: {error}"}), flush=True)
                continue
            print(json.dumps({"case": case, "values": values, "bits": bits_of(folder)}), flush=True)


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != str(Path(__file__).parent)]
    main()
