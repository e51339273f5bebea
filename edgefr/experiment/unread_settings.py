"""A setting that nothing reads is refused, and no run writes it down.

Settings that depend on their own section say so beside their type (`privacy.setting_scope`); this table has those that
depend on protocol, method, strategy or prototypes. A default value is accepted, since it changes nothing and older
files name every setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from edgefr.data.protocol import PROTOCOLS
from edgefr.experiment.continual import ContinualSettings, readers
from edgefr.experiment.text_encoder import ENCODERS
from privacy.setting_scope import default_of, unread_fields

if TYPE_CHECKING:
    from edgefr.experiment.schema import ExperimentFields

Path = tuple[str, ...]


def _method(e: ExperimentFields) -> str:
    return f"{'method' if e.backbone is None else 'backbone'} is {e.row.name}"


@dataclass(frozen=True)
class SettingScope:
    """A row says whose settings are (a section stands for all in it) and whether an experiment reads them.

    `names`: the settings, one after another. `here` is what the experiment has in the owner's place, and `mend` what
    selects the owner.
    """

    names: str
    owner: str
    reads: Callable[[ExperimentFields], bool]
    here: Callable[[ExperimentFields], str] = _method
    mend: str = ""


def _protocol(e: ExperimentFields) -> str:
    return f"protocol is {e.protocol.name}"


def _central(e: ExperimentFields) -> str:
    return f"{e.row.name} is a central reference, which pools everybody's data"


def _strategy_row(name: str) -> SettingScope:
    owner = f"strategy {' or '.join(readers(name))}"
    return SettingScope(
        f"continual.{name}", owner, lambda e: e.strategy in readers(name), lambda e: f"strategy is {e.strategy}"
    )


def _protocol_row(name: str) -> SettingScope:
    """Return the row of a setting that is read over some protocols alone."""
    owners = " or ".join(protocol.name for protocol in PROTOCOLS.values() if name in protocol.own)
    return SettingScope(
        name, f"protocol {owners}", lambda e: name in e.protocol.entry.own, _protocol, f"protocol.name={owners}"
    )


def _has_rate(e: ExperimentFields) -> bool:
    return "item_lr" in e.row.settings.model_fields and e.model.get("item_lr") is None


ROWS: tuple[SettingScope, ...] = (
    *(_strategy_row(name) for name in ContinualSettings.model_fields if readers(name)),
    SettingScope(
        "rounds local_epochs clients_per_round aggregation privacy attackers fleet export engine.executor "
        "engine.workers engine.ray_address engine.shard_size engine.memory_mb evaluation.keep evaluation.patience "
        "evaluation.tables",
        "federated methods",
        lambda e: e.row.central is None,
        _central,
    ),
    SettingScope(
        "protocol.negatives_avoid_held_out",
        "federated methods",
        lambda e: e.row.central is None or "negatives_avoid_held_out" not in type(e.protocol).model_fields,
        _central,
    ),
    SettingScope(
        "local_training",
        "methods whose clients train locally after the rounds",
        lambda e: e.row.central is None and e.row.stages[1] is not None,
    ),
    SettingScope(
        "evaluation.judged_by",
        "runs that keep their best round",
        lambda e: e.keeps_best or e.row.central is not None,
        lambda e: "the last is kept",
        "evaluation.keep=best",
    ),
    SettingScope(
        "evaluation.patience",
        "runs that keep their best round",
        lambda e: e.keeps_best,
        lambda e: "the last is kept",
        "evaluation.keep=best",
    ),
    SettingScope(
        "batch_size negatives evaluation.every",
        "references that learn from batches",
        lambda e: e.row.central is None or e.row.central.batches,
    ),
    SettingScope(
        "batch_size negatives local_epochs",
        "methods that learn from batches with sampled negatives",
        lambda e: e.row.batches,
    ),
    SettingScope(
        "negatives",
        "losses of sampled negatives",
        lambda e: not e.learns_from_all or e.negatives == e.own.defaults.get("negatives"),
        lambda e: f"model.loss is {e.model['loss']}",
        "model.loss=softmax",
    ),
    SettingScope(
        "knowledge",
        "methods that send prototypes",
        lambda e: e.prototypes is not None and e.prototypes.through == "knowledge",
        lambda e: "none are sent",
        "model.prototypes",
    ),
    SettingScope(
        "knowledge.replace",
        "protocol.stream cyclic",
        lambda e: e.protocol.returns,
        lambda e: "no session comes back",
        "protocol.stream=cyclic",
    ),
    SettingScope("encoder export.vocabulary export.students", "methods that read text", lambda e: e.row.needs_text),
    SettingScope(
        "encoder.teacher",
        "distill null",
        lambda e: e.encoder.kind != "student" or e.encoder.distill is None,
        lambda e: "distill is set",
        "encoder.distill=null",
    ),
    SettingScope(
        "export.vocabulary export.students",
        "encoders that are language models",
        lambda e: ENCODERS[e.encoder.kind].language_model,
        lambda e: f"encoder.kind is {e.encoder.kind}",
        "encoder.kind=student",
    ),
    SettingScope(
        "export.vocabulary export.students",
        "clients that read vectors of a frozen encoder",
        lambda e: e.model.get("client") != "lora",
        lambda e: "model.client is lora",
        "model.client=mlp",
    ),
    SettingScope(
        "evaluation.curve_ranking",
        "protocols that hold out one item of a user",
        lambda e: not (e.protocol.entry.validates_once or e.protocol.entry.several),
        _protocol,
    ),
    SettingScope(
        "continual.item_rate",
        "methods whose item rows have a learning rate times a number of items",
        _has_rate,
        lambda e: "model.item_lr is set" if e.model.get("item_lr") is not None else _method(e),
    ),
    SettingScope("batch_size", "methods that learn from sets of items", lambda e: e.row.reads == "items"),
    SettingScope("export", "methods that have bundles", lambda e: not e.row.own_rows),
    SettingScope(
        "privacy.trust",
        "runs that clip or add noise",
        lambda e: e.privacy.clip is not None or e.privacy.mechanism != "none",
        lambda e: "this one does neither",
    ),
    SettingScope(
        "privacy.delta",
        "runs with noise",
        lambda e: e.privacy.mechanism != "none" or e.privacy.examples is not None,
        lambda e: "privacy.mechanism is none",
        "privacy.mechanism",
    ),
    SettingScope(
        "attackers",
        "protocol leave-one-out",
        lambda e: e.protocol.name == "leave-one-out",
        _protocol,
        "protocol.name=leave-one-out",
    ),
    SettingScope(
        "fidelity",
        "methods whose released code differs",
        lambda e: e.fidelity != "released" or e.protocol.entry.released(e),
    ),
)
"""In the order in which they are asked: the first that does not read a setting says why."""


def unread(experiment: ExperimentFields) -> dict[Path, str]:
    """Return the settings that nothing reads in this experiment, by section where possible, and why.

    Example: ``unread(load_experiment(overrides=["method=fedmf"]))["encoder",]``
    """
    out: dict[Path, str] = {}
    read_over_some = dict.fromkeys(name for protocol in PROTOCOLS.values() for name in protocol.own)
    for row in (*map(_protocol_row, read_over_some), *ROWS):
        if not row.reads(experiment):
            mend = f", or set {row.mend}" if row.mend else ""
            for name in row.names.split():
                why = f"belongs to {row.owner}, and {row.here(experiment)}: drop it{mend}"
                out.setdefault(tuple(name.split(".")), why)
    for path, model in _sections(experiment):
        out |= {(*path, name): why for name, why in unread_fields(model).items()}
    return out


def first_refused(experiment: ExperimentFields) -> tuple[Path, str] | None:
    """Return the first setting that was set and that nothing reads, and why, or None."""
    for path, why in unread(experiment).items():
        value, default = _at(experiment, path)
        for changed in _differences(value, default):
            return (*path, *changed), why
    return None


def read_values(experiment: ExperimentFields) -> dict[str, Any]:
    """Return the experiment as plain values without unread settings, as a run writes it."""
    values = experiment.model_dump()
    for path in unread(experiment):
        at: Any = values
        for name in path[:-1]:
            at = at.get(name) if isinstance(at, dict) else None
        if isinstance(at, dict):
            at.pop(path[-1], None)
    return values


def _sections(experiment: ExperimentFields) -> Iterator[tuple[Path, BaseModel]]:
    yield ("model",), experiment.settings
    waiting: list[tuple[Path, BaseModel]] = [((), experiment)]
    while waiting:
        path, model = waiting.pop(0)
        if path:
            yield path, model
        for name in type(model).model_fields:
            value = getattr(model, name)
            if isinstance(value, BaseModel):
                waiting.append(((*path, name), value))


def _at(experiment: ExperimentFields, path: Path) -> tuple[Any, Any]:
    """Return a setting, or a section of them, and what it is by default."""
    if path[0] == "model":
        settings = experiment.settings
        if path[1] not in type(settings).model_fields:  # another method's
            return None, None
        return getattr(settings, path[1]), default_of(type(settings).model_fields[path[1]])
    value: Any = experiment
    for name in path[:-1]:
        value = getattr(value, name)
    return getattr(value, path[-1]), default_of(type(value).model_fields[path[-1]])


def _differences(value: Any, default: Any) -> Iterator[Path]:
    """Yield where a setting, or a section of them, is not what it is by default."""
    if isinstance(value, BaseModel) and isinstance(default, type(value)):
        for name in type(value).model_fields:
            for at in _differences(getattr(value, name), getattr(default, name)):
                yield (name, *at)
    elif value != default:
        yield ()
