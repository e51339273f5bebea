"""One finished run is read as a comparison needs it: what it was asked, and the metrics of every user it tested.

Files of a run may come from anybody, so everything is checked before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edgefr.experiment.unread_settings import read_values
from edgefr.metrics.settings import UNLEARNED
from edgefr.simulation.runs.layout import PRIVATE
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES = 1 << 30
"""A table of users that takes more than this in memory is refused."""
KEYS = ("user", "on", "stage", "ranking")
UNTOLD = ("name", "seed", "engine")
"""Values of an experiment that say nothing about a difference between two runs."""

PerUser = tuple[npt.NDArray[np.str_], Mapping[str, npt.NDArray[np.float64]]]
"""Names of users, ascending and each once, and their metrics, float64 [users] each."""


@dataclass(frozen=True)
class FinishedRun:
    """This is a run of one seed. `users`: what was measured, by ranking and the place it was asked about.

    `asked`: the data, and the protocol, that the numbers are of: by what each is called. `values`: all other values of
    the experiment, by dotted name. `stage`: of the model. `verdicts`: whether learning helped, in words. `baselines`:
    what references reached on the same items, by ranking, name and metric.
    """

    path: Path
    seed: int
    asked: Mapping[str, str]
    values: Mapping[str, str]
    stage: str
    users: Mapping[str, Mapping[str, PerUser]]
    verdicts: Sequence[str]
    baselines: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)


def read(path: Path) -> FinishedRun:
    """Read a finished run of one seed. Raises `InputError` for one that is not whole, and for damaged files."""
    run = Run.open(path)
    summary, experiment = _summary(run), run.experiment
    source = summary["dataset"].get("source")
    source = source if isinstance(source, dict) else {}
    counts = {name: value for name, value in summary["dataset"].items() if name != "source"}
    asked = {
        "data": f"{experiment.data} {_plain(experiment.data_options)}",
        "protocol": f"{summary['protocol']} {_plain(experiment.protocol.model_dump())}",
        "data set": _plain({**counts, "content": source.get("sha256") or source.get("notes")}),  # wherever it lay
    }
    values = {
        name: value
        for name, value in _flat(read_values(experiment))
        if name.partition(".")[0] not in (*UNTOLD, "data", "data_options", "protocol")
    }
    told = summary.get("verdicts")
    parts = [part for part in told.values() if isinstance(part, list)] if isinstance(told, dict) else []
    places, stage = _places(summary), str(summary["stage"])
    users = _users(run.path, stage, places)
    lines = [str(line) for part in parts for line in part]
    return FinishedRun(path, experiment.seed, asked, values, stage, users, lines, _baselines(summary))


def _summary(run: Run) -> dict[str, Any]:
    found = run.summary
    for name, kind in {"dataset": dict, "protocol": str, "stage": str}.items():
        if not isinstance(found, dict) or not isinstance(found.get(name), kind):
            raise InputError(f"{run.path / 'summary.json'} does not say its {name}; run the experiment again")
    return found


def _places(summary: Mapping[str, Any]) -> list[str] | None:
    """Return the splits or blocks whose held-out items count; None: every one that was asked about.

    Of several splits it is the last. Of blocks those after the base block count, as in the run's own averages.
    """
    if isinstance(summary.get("split"), str):
        return [summary["split"]]
    blocks = summary.get("blocks")
    names = [block.get("name") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    return [str(name) for name in names[1:] or names] or None


def _baselines(summary: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Return what references reached on the split that counts, by ranking, name and metric; of blocks nothing."""
    out = dict[str, dict[str, dict[str, float]]]()
    parts = {"sampled": summary.get("references"), "full": summary.get("full_ranking")}
    of: dict[str, Any] = {
        kind: part.get(summary.get("split")) for kind, part in parts.items() if isinstance(part, dict)
    }
    found = {kind: values for kind, values in of.items() if isinstance(values, dict)}
    for name in (name for name in found.get("sampled", ()) if not str(name).startswith(UNLEARNED)):
        for ranking, of_name in found.items():
            if isinstance(values := of_name.get(name), dict):
                numbers = {metric: value for metric, value in values.items() if isinstance(value, float)}
                out.setdefault(ranking, {})[str(name)] = numbers
    return out


def _flat(values: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from _flat(value, f"{name}.{key}" if name else str(key))
    else:
        yield name, _plain(values)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _users(run: Path, stage: str, places: Sequence[str] | None) -> dict[str, dict[str, PerUser]]:
    """Return the metrics of single users of a stage, by ranking and place."""
    path = run / PRIVATE / "users.parquet"
    if not path.is_file():
        raise InputError(f"{path} is not there, and runs are compared user by user; bring the run's private part too")
    table = _table(path)
    metrics = [name for name in table.column_names if name not in KEYS]
    user, on, of, ranking = (table[name].to_numpy(zero_copy_only=False).astype(np.str_) for name in KEYS)
    values = {name: table[name].to_numpy(zero_copy_only=False) for name in metrics}
    out = dict[str, dict[str, PerUser]]()
    for kind in np.unique(ranking).tolist():
        for place in places or np.unique(on).tolist():
            rows = np.flatnonzero((ranking == kind) & (on == place) & (of == stage))
            names, first = np.unique(user[rows], return_index=True)
            if len(names) != len(rows):
                raise InputError(f"{path} has a user of {place} twice; run the experiment again")
            found = {name: column[rows[first]] for name, column in values.items()}
            if len(names):
                out.setdefault(kind, {})[place] = names, {n: v for n, v in found.items() if not np.isnan(v).any()}
    if not out:
        raise InputError(f"{path} has no users of stage '{stage[:40]}'; run the experiment again")
    return out


def _table(path: Path) -> pa.Table:
    """Read a table of users' metrics, checked: its columns are text and then numbers, without gaps in its keys."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with path.open("rb") as file:
            source = parquet.ParquetFile(file)
            schema = source.schema_arrow
            text = [pa.types.is_string(of.type) or pa.types.is_large_string(of.type) for of in schema]
            typed = [is_text == (of.name in KEYS) for is_text, of in zip(text, schema, strict=True)]
            numbers = [pa.types.is_floating(field.type) for field in schema if field.name not in KEYS]
            if not set(KEYS) <= set(schema.names) or len(set(schema.names)) != len(schema.names):
                raise InputError(f"{path} is no table of users' metrics (no {', '.join(KEYS)}); run it again")
            if not numbers or not all(typed) or not all(numbers):
                raise InputError(f"{path} is no table of users' metrics: its columns are not numbers; run it again")
            size = sum(source.metadata.row_group(g).total_byte_size for g in range(source.num_row_groups))
            if size > MOST_BYTES or source.metadata.num_rows * 8 * len(schema) > MOST_BYTES:
                raise InputError(f"{path} takes more than {MOST_BYTES >> 30} GB; evaluate fewer users")
            table = source.read(use_threads=False)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; run the experiment again") from error
    except (pa.ArrowException, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0][:100]}); run it again") from error
    if any(table[name].null_count for name in KEYS):
        raise InputError(f"{path} has rows without a name; run the experiment again")
    return table
