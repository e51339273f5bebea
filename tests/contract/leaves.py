"""Every setting of an experiment is changed, one at a time: the run comes to something else, or the change is refused.

    python -m tests.contract.leaves [METHOD ...]     every method (or these), a line per setting that changes nothing

The settings are taken from the schema, so a new one is asked about before anybody thought of it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

import edgefr
from edgefr.data import READERS
from edgefr.experiment import Change, Experiment
from edgefr.fleet.spec import FleetSection, Rounds
from privacy.belongs import EntryName, default_of
from privacy.errors import InputError
from privacy.table import Choice
from tests.golden.cases import MODELS, PRIVACY, PROTOCOLS, SIZE, ready
from tests.golden.values import differences, values_of

Place = tuple[str, ...]
BASES: dict[str, dict[str, str]] = {
    **{name: {"method": name, **MODELS["items"]} for name in ("fedmf", "fedncf", "pfedrec", "fedrap", "gpfedrec")},
    "f3crec": {  # what it remembers says something only where the model does
        **{"method": "f3crec", **MODELS["items"], "model.init_scale": "1.0", "continual.kd_weight": "1.0"},
    },
    **{name: {"method": name, **MODELS["sequences"]} for name in ("sasrec", "gru4rec", "tisasrec", "fcucr")},
    "transfr mlp": MODELS["mlp"],
    "transfr lora": MODELS["lora"],
}
"""What is changed one setting at a time: every method on its own protocol."""

VALUES: dict[str, list[Any]] = {
    "name": ["other"],
    "method": ["pfedrec", "fedmf"],
    "backbone": ["pfedrec", "gru4rec"],
    "strategy": ["ft", "reg"],
    "engine.executor": ["debug"],
    "data": ["ml-100k"],
    "clients_per_round": [0.3],
    "rounds": [2],
    "batch_size": [8],
    "evaluation.k": [[3]],
    "encoder.distill.layer_map": [[2, 6]],
    "encoder.distill.layer_weights": [[1.0, 2.0, 1.0]],
    "evaluation.curve_users": [5],
    "evaluation.full_ranking_users": [5],
    "data_options.interactions": [20.0],
    "engine.memory_mb": [16],
    "engine.device": ["cuda"],
    "continual.patience": [1],
    "continual.list_size": [3],
    "sessions.patience": [1],
    "knowledge.index": ["faiss", "exact"],
    "knowledge.window": [1],
    "knowledge.interval": [2],
    "knowledge.top_k": [1],
    "knowledge.least_clients": [19],
    "protocol.gap_minutes": [4000.0],
    "protocol.min_interactions": [9, 6],
    "protocol.min_sessions": [5],
    "protocol.min_length": [3],
    "fleet.share": [{"laptop_x86": 1.0}],
    "fleet.stack": ["mobile_ort"],
    "fleet.networks": [{"lte": 1.0}],
    "fleet.availability": [None],
    "fleet.battery": [{"min_soc": 1.0}],
    "fleet.dropout": [0.5],
    "fleet.rounds.deadline_s": [0.5],
    "fleet.rounds.over_select": [3.0],
    "fleet.rounds.min_fraction": [1.0],
    "export.students": [[{"layers": 1, "hidden": 8, "steps": 2}]],
    "export.max_quality_loss": [0.0],
    "export.min_overlap": [1.0],
    "export.deadline_ms": [0.000001],
    "export.budget_j": [1e-12],
    "export.vocabulary": [60],
    "model.head": [[5, 6]],
    "model.adapter": [[14, 6]],
    "model.lora_targets": [["key"]],
    "privacy.tensors": [["encoder.position"], ["adapter.0.weight"], ["item"]],
    "privacy.clip": [0.001],
    "privacy.at_least": [36, 1000],
    "aggregation.weights": ["size", "uniform"],
}
"""Values to change to, where the general rule finds none that would do."""

LABELS = {"fidelity", "strategy", "method", "backbone", "rounds", "seed"}
"""Parts of a summary that repeat what was asked, and say nothing of what came out."""

OF_THE_MACHINE = {"seconds", "clients_per_second", "peak_rss_mb", "versions", "experiment", "privacy", "bundles"}


def leaves(experiment: Experiment) -> Iterator[tuple[Place, FieldInfo | None, Any]]:
    """Yield every setting that an experiment can have: its place, its field and its present value."""
    yield from _of(type(experiment), experiment, ())
    yield from _of(type(experiment.settings), experiment.settings, ("model",))
    yield from _of(READERS[experiment.data].options, None, ("data_options",))
    yield from _of(FleetSection, None, ("fleet",))
    yield from _of(Rounds, None, ("fleet", "rounds"))


def _of(schema: type[BaseModel], model: BaseModel | None, at: Place) -> Iterator[tuple[Place, FieldInfo | None, Any]]:
    for name, field in _fields(schema).items():
        place = (*at, name)
        value = getattr(model, name, default_of(field))
        if isinstance(value, BaseModel):
            yield from _of(type(value), value, place)
        elif place not in (("model",), ("data_options",), ("fleet",), ("protocol", "name")):
            yield place, field, value


def _fields(schema: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of settings; those of every entry, where a table has one's settings here."""
    out = dict(schema.model_fields)
    if issubclass(schema, Choice):
        for entry in schema.table.values():
            out |= {} if entry.settings is None else entry.settings.model_fields
        out[schema.key] = FieldInfo(annotation=Literal[tuple(schema.table)])  # type: ignore[arg-type]
    return out


def others(place: Place, field: FieldInfo | None, value: Any) -> list[Any]:
    """Return values that a setting could be changed to, the likeliest to be taken first."""
    named = VALUES.get(".".join(place))
    if named is not None:  # what a fleet has stands in devices.yaml, not in the schema's defaults
        return named if place[0] == "fleet" else [other for other in named if other != value]
    for part in () if field is None else field.metadata:
        if isinstance(part, AfterValidator) and isinstance(part.func, EntryName):
            return [name for name in part.func.table if name != value]
    for kind in _kinds(None if field is None else field.annotation):
        if get_origin(kind) is Literal:
            return [other for other in get_args(kind) if other != value]
        if kind is bool:
            return [not value]
        if kind is int:
            return [1 if value is None else value + 1, value - 1 if value else 2]
        if kind is float:
            return [0.5] if not isinstance(value, int | float) or not value else [value * 0.5, value * 2]
    return ["/nope"]


def _kinds(annotation: Any) -> list[Any]:
    """Return the plain types of an annotation."""
    if annotation in (bool, int, float, str) or get_origin(annotation) is Literal:
        return [annotation]
    return [kind for part in get_args(annotation) for kind in _kinds(part)]


class Asked:
    """Runs of one base, each with one setting changed; the base itself is run once."""

    def __init__(self, name: str, student: Path, folder: Path, extra: dict[str, str] | None = None):
        base = {**BASES[name], **SIZE, "rounds": "3"}
        own = edgefr.load_experiment(overrides=[f"method={base['method']}"]).protocol.name
        values = {**base, **PROTOCOLS[own], **(extra or {})}
        self.overrides = ready([f"{key}={value}" for key, value in values.items()], student)
        self.folder, self.known = folder, dict[bool, dict[str, Any]]()
        self.experiment = edgefr.load_experiment(overrides=self.overrides)

    def outcome(self, place: Place, value: Any) -> tuple[str, str]:
        """Return "refused" and why, "changed" and by what, or "nothing" and the value that nobody read."""
        change = Change(".".join(place), value, "the change")
        try:
            ships = place[0] == "export"
            made = edgefr.load_experiment(overrides=[*self._overrides(ships), change])
            found = self._results(made, ships)
        except InputError as error:
            return "refused", str(error)
        if ships not in self.known:
            self.known[ships] = self._results(edgefr.load_experiment(overrides=self._overrides(ships)), ships)
        lines = differences(found, self.known[ships])
        return ("changed", lines[0]) if lines else ("nothing", f"{'.'.join(place)}={value}")

    def _overrides(self, ships: bool) -> list[str]:
        """Return the base's overrides; where bundles are made, for one device class: each takes seconds."""
        return [*self.overrides, *(["fleet.share={laptop_x86: 1.0}"] if ships else [])]

    def _results(self, experiment: Experiment, bundles: bool) -> dict[str, Any]:
        """Return the tensors, metrics, ledger, clock and the rest of the summary of a run; with bundles, theirs too."""
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            folder = Path(place) / "run"
            edgefr.simulate(experiment, out=folder, bundles=bundles, figures=False)
            summary = json.loads((folder / "summary.json").read_text())
            files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
            plain = {key: value for key, value in _plain(summary).items() if key not in LABELS}
            rows = summary["bundles"] if bundles else []
            shipped = [{k: row[k] for k in ("class", "variant", "fits", "lacks", "passed_over")} for row in rows]
            return {**values_of(folder), "summary": plain, "files": files, "shipped": shipped}


def _plain(value: Any) -> Any:
    """Return a summary without what is of the machine or of the moment."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k not in OF_THE_MACHINE - {"experiment"}}
        return {k: _plain(v) for k, v in kept.items() if not k.endswith("_seconds")}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def swept(
    name: str, student: Path, folder: Path, extra: dict[str, str] | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield every setting of a base with what came of changing it: the first value that has an effect, or is refused.

    A setting of which only some values are refused is asked with the others.
    """
    asked = Asked(name, student, folder, extra)
    for place, field, value in leaves(asked.experiment):
        found: tuple[str, str] = ("refused", "there is no other value")
        for other in others(place, field, value):
            now = asked.outcome(place, other)
            if now[0] != "refused" or found[1] == "there is no other value":
                found = now
            if found[0] == "changed":
                break
        yield ".".join(place), *found


def main() -> None:
    """Print the settings that change nothing, and how many of each method changed or were refused."""
    from tests.export.worlds import student

    for name in sys.argv[1:] or BASES:
        base, _, trust = name.partition(":")
        counts = {"changed": 0, "refused": 0, "nothing": 0}
        with tempfile.TemporaryDirectory() as place:
            for setting, outcome, why in swept(base, student(), Path(place), PRIVACY[trust] if trust else None):
                counts[outcome] += 1
                print(f"{name}: {outcome} {setting}: {why[:150]}", flush=True)
        print(name, counts, flush=True)


if __name__ == "__main__":
    main()
