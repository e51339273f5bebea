"""An experiment is everything that decides a result, in one validated object.

Values come from, strongest last: the general defaults, the method's defaults, the YAML file, `--set key=value`.
Owns: the schema and how it is read. Does not own: the settings of rooms (each owns its own) or their meaning.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError, model_validator

from cloud.rule import RULES
from cloud.rules.temporal_mean import TemporalMeanSettings
from edgefr.config.arguments import checked
from edgefr.config.display import MORE
from edgefr.config.documents import Document, text_for, value_of
from edgefr.config.executors import BACKENDS
from edgefr.config.validation import fault, first_fault
from edgefr.data.datasets import is_named, plain_name
from edgefr.data.files.options import FileOptions
from edgefr.data.protocol import PROTOCOLS, ProtocolSettings
from edgefr.experiment.continual import STRATEGIES, strategy
from edgefr.experiment.method import METHODS, Method, method
from edgefr.experiment.paths import found_from
from edgefr.experiment.schema import KINDS, ExperimentFields
from edgefr.experiment.sections import EncoderSection
from edgefr.experiment.short_names import field_of, noise_for
from edgefr.experiment.unread_settings import first_refused, read_values
from privacy.errors import InputError
from privacy.setting_scope import unread_values
from privacy.table import Choice
from privacy.trust import TRUSTS


class Experiment(ExperimentFields):
    """This is one experiment. Unknown keys are refused; `model` is checked against the method's own settings."""

    @model_validator(mode="after")
    def _fits_together(self) -> Experiment:
        method(self.method)
        for field, look_up in (("backbone", lambda: self.row), ("strategy", lambda: strategy(self.strategy))):
            try:
                look_up()
            except InputError as error:
                raise fault(str(error), field) from None
        self._check_backbone()
        try:
            self.model = self.row.settings.model_validate(self.model).model_dump()
        except ValidationError as error:
            location, problem = first_fault(error, self.row.settings)
            raise fault(problem, "model", *location) from None
        self._check_owner()
        self.protocol.entry.check(self)
        self.row.fits(self.context)
        self._check_rule()
        self._check_examples()
        self._check_attackers()
        self._check_reads()
        self._check_prototypes()
        refused = first_refused(self)
        if refused is not None:
            raise fault(refused[1], *refused[0])
        if self.clients_per_round > 1 and self.clients_per_round != int(self.clients_per_round):
            raise fault("it is a share up to 1 (0.2) or a whole number of clients (50)", "clients_per_round")
        if self.privacy.mechanism != "none" and self.aggregation.by_size:
            raise fault(
                "size sends each client's number of examples, which privacy.mechanism does not protect; use uniform",
                "aggregation",
                "weights",
            )
        if self.aggregation.server_lr == "auto" and self.privacy.clip is None:
            raise fault("auto goes with a clip: set privacy.clip, or a number", "aggregation", "server_lr")
        return self

    def _check_backbone(self) -> None:
        """Only methods made of another's local program choose one, and FCUCR's reads sessions."""
        own = method(self.method)
        if self.backbone in (None, self.method):
            return
        if "backbone" not in own.defaults:
            raise fault(f"{self.method} has its own: drop it, or set method={self.backbone}", "backbone")
        if not self.row.lends(own):
            rows = [row for row in METHODS.values() if row.lends(own)]
            fit = ", ".join(row.name for row in rows if not (row.own_rows or row.central))
            raise fault(f"{self.method} has no {self.backbone}: use one of {fit}", "backbone")

    def _check_owner(self) -> None:
        """Refuse a rule that another method's clients upload for, and any other for theirs."""
        rule, row = self.aggregation.entry, self.row
        for differs, what, whose in (
            (rule.personal != row.answered, "rules with an answer for each client are", "answered"),
            (rule.grams != row.grams, "gram is", "grams"),
        ):
            if differs:
                theirs = " or ".join(name for name, row in METHODS.items() if getattr(row, whose))
                raise fault(f"{what} {theirs}'s, which has no other", "aggregation", "rule")

    def _check_rule(self) -> None:
        """Refuse a strategy or rule with nothing to look back to, and one whose noise is not accounted for."""
        looks_back = [name for name, row in PROTOCOLS.items() if row.hands_on]
        if self.protocol.name not in looks_back:
            mend = f"set protocol.name={' or '.join(looks_back)}"
            if self.strategy != "ft":
                raise fault(f"{self.strategy} keeps knowledge between blocks: {mend}", "strategy")
            if self.aggregation.entry.looks_back:
                raise fault(f"{self.aggregation.rule} looks back a block: {mend}", "aggregation", "rule")
        if self.privacy.mechanism != "none" and not self.aggregation.is_sum:
            raise fault("its sensitivity is not that of a clipped sum; with noise use mean", "aggregation", "rule")

    def _check_reads(self) -> None:
        """Refuse a local program that the protocol gives nothing to read, and another program's encoder in it."""
        if (why := self.protocol.entry.refuses(self.row)) is not None:
            raise fault(why, "protocol")
        if "encoder" in self.model and "backbone" not in self.row.defaults:
            encoder, what = self.model["encoder"], "method" if self.backbone is None else "backbone"
            if encoder != self.row.name:
                raise fault(f"{self.row.name} has its own: drop it, or set {what}={encoder}", "model", "encoder")

    def _check_prototypes(self) -> None:
        """Refuse privacy settings that do not cover prototypes, which the server sees singly."""
        sent = self.prototypes
        if sent is None:
            if self.privacy.prototype_clip is not None:
                raise fault("no prototypes are sent: drop it, or set model.prototypes", "privacy", "prototype_clip")
            return
        if self.privacy.at_least > 1:
            problem = f"the server sees every {sent.what}, so secure aggregation gives no anonymity; set {sent.off}"
            raise fault(problem, "privacy", "at_least")
        if self.privacy.clip is None:
            return
        if not TRUSTS[self.privacy.trust].sees_uploads:
            problem = f"the server sees single {sent.what}s, which noise on a sum does not hide; use local"
            raise fault(f"{problem}, or set {sent.off}", "privacy", "trust")
        if sent.asked:
            problem = "every recommendation would send one more prototype, which nothing clips or counts; use false"
            raise fault(problem, "model", "asks_when_recommending")
        if sent.queried:
            raise fault("one more prototype would leave, which nothing clips or counts; use sent", "model", "query")
        if self.knowledge.replace and self.protocol.returns and self.privacy.mechanism != "none":
            problem = "it tells the server which session comes back, and so how many a client has; use false"
            raise fault(problem, "knowledge", "replace")

    def _check_examples(self) -> None:
        """Refuse DP-SGD on the device where it is not available; programs are checked when they are made."""
        if self.privacy.examples is None:
            return
        if not self.protocol.entry.counts_examples:
            over = self.protocol.name
            raise fault(f"it is not counted over {over}; use protocol.name=leave-one-out", "privacy", "examples")
        if not BACKENDS[self.engine.executor].one_by_one:
            raise fault("with privacy.examples clients learn one by one: use inline", "engine", "executor")

    def _check_attackers(self) -> None:
        """Refuse attackers whose uploads would go another way than those of honest clients."""
        asked = self.attackers
        if asked is None:
            return
        if self.privacy.law is not None and self.privacy.trust == "local":
            problem = "noise on uploads is drawn for their sum, to which attackers would add none; use central"
            raise fault(problem, "privacy", "trust")
        if self.privacy.examples is not None:
            raise fault("with attackers clients learn without DP-SGD: drop it", "privacy", "examples")
        if not self.evaluation.full_ranking_users:
            raise fault("attackers are measured by full ranking; set it above 0", "evaluation", "full_ranking_users")
        if asked.beyond and self.aggregation.entry.bound(self.aggregation) is not None:
            problem = f"{self.aggregation.rule} cuts every upload to its own bound: drop it"
            raise fault(problem, "attackers", "beyond")

    def brief(self) -> list[str]:
        """Return what differs from where its choices start from."""
        return [described(self)]


@dataclass(frozen=True)
class Change:
    """A change is a value for one field by its dotted name, laid over the file.

    `source`: what errors about it call it.
    """

    field: str
    value: Any
    source: str

    @classmethod
    def parse(cls, text: str) -> Change:
        """Read `key=value` of `--set`: text as it stands where the field is text, else YAML. Raises `InputError`.

        >>> Change.parse("aggregation.beta=0.9").value, Change.parse("data_options.time=%d/%m/%Y").value
        (0.9, '%d/%m/%Y')
        """
        key, sign, value = text.partition("=")
        parts = [part.strip() for part in key.split(".")]
        if not sign or not all(parts):
            raise InputError(f"--set takes key=value, got '{text}'; for example --set rounds=5")
        schema = FileOptions if parts[0] == "data_options" else Experiment
        told = text_for(schema, parts[1:] if schema is FileOptions else parts, value)
        source = f"--set {text}"
        return cls(
            ".".join(parts),
            value_of(value, source, "the value is not YAML; quote it") if told is None else told[0],
            source,
        )


@checked
def load_experiment(
    path: str | Path | Experiment | None = None, overrides: Sequence[str | Change] = (), **values: Any
) -> Experiment:
    """Read an experiment file, apply `key=value` overrides and named values (None is ignored), validate it whole.

    An experiment in place of a file is taken as it is, to be changed; another method starts from its own `model`. Named
    values may be `epsilon` and `clip` too, of `privacy`. Raises `InputError` naming file, line and field.

    >>> load_experiment(overrides=["rounds=3", "model.user_encoder=mean"]).rounds
    3
    """
    if isinstance(path, Experiment):
        document = Document(read_values(path), "experiment")
    else:
        document = Document.read(path) if path is not None else Document({}, "experiment")
        if path is not None:
            found_from(Path(path).parent, document.values)
    changes = [Change.parse(change) if isinstance(change, str) else change for change in overrides]
    named = {field_of(key): value for key, value in values.items() if value is not None}
    sources = {c.field: c.source for c in changes} | {k: f"--{k.split('.')[-1].replace('_', '-')}" for k in named}
    asked = {change.field: change.value for change in changes} | named
    if path is None and "name" not in asked and "data" in named and not is_named(str(named["data"])):
        document.put("name", plain_name(str(named["data"])), source="--data")
    if isinstance(path, Experiment) and asked.get("method", path.method) != path.method:
        document.values.pop("model", None)
    _fill_defaults(document, asked, sources)
    reader = document.values.get("encoder")
    if isinstance(reader, dict) and "encoder.kind" in asked:  # what the file sets for another reader goes with it
        for name in unread_values(EncoderSection, {**reader, "kind": asked["encoder.kind"]}):
            reader.pop(name, None)
    for change in changes:
        parts = change.field.split(".")
        if parts[-1] == "name" and len(parts) > 1:  # a section of another kind starts from its own defaults
            document.values.pop(parts[0], None)
        _fill(document.values, parts[:-1] if parts[-1] == "name" else parts)
        document.put(change.field, copy.deepcopy(change.value), source=change.source)
    for key, value in (noise_for(named, document.values, asked) | named).items():
        document.put(key, value, source=sources.get(key, "--epsilon"))
    _drop_unread(document.values)
    return document.validate(Experiment)


def _fill_defaults(document: Document, changes: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Add the defaults of method, backbone and strategy to the document; `changes` may choose them."""

    def chosen(field: str, default: str | None = None) -> str:
        return str(changes.get(field, document.values.get(field, default)))

    try:
        row = method(chosen("method", "transfr"))
    except InputError as error:
        where = sources["method"] if "method" in sources else document.where(("method",))
        raise InputError(f"{where}: {error}") from None
    fidelity = chosen("fidelity", "ours")
    rule = changes.get("aggregation.rule")
    if rule is not None:  # so that what a method starts from for another rule is left alone
        document.values["aggregation"] = {**(document.values.get("aggregation") or {}), "rule": rule}
    for values in row.released_values(_protocol(changes, document.values, row)) if fidelity == "released" else ():
        _under(document.values, values)
    client = row.clients.get(str(_in_section(changes, document.values, "model", "client")), {})
    _under(document.values, client)
    if fidelity == "ours":
        _under(document.values, row.ours)
    if fidelity == "paper" and not client:
        _under(document.values, row.as_written)
    _under(document.values, row.defaults)
    protocol = PROTOCOLS.get(str(_in_section(changes, document.values, "protocol", "name")))
    _under(document.values, protocol.defaults if protocol is not None else {})
    backbone = METHODS.get(chosen("backbone"))
    if backbone is not None:
        ported = backbone.released_over.get(_protocol(changes, document.values, row), {})
        _under(document.values, ported if fidelity == "released" else {})
        _under(document.values, backbone.ours if fidelity == "ours" else {})
        _under(document.values, backbone.defaults)
    kept = STRATEGIES.get(chosen("strategy"))
    if kept is None:
        return
    if fidelity == "paper":
        _under(document.values, kept.as_written)
    own = document.values.get("aggregation")
    if "strategy" in changes and isinstance(own, dict) and own.get("rule", "mean") in ("mean", "temporal-mean"):
        _give_way(own, str(kept.server.get("rule", "mean")))
    _under(document.values, {"aggregation": kept.server} if kept.server else {})


def _give_way(aggregation: dict[str, Any], rule: str) -> None:
    """Remove what the file's strategy and rule set in `aggregation`, for the new strategy's `rule`."""
    reads = RULES[rule].settings.model_fields
    for key in ["rule", "itemwise", *(key for key in TemporalMeanSettings.model_fields if key not in reads)]:
        aggregation.pop(key, None)


def _drop_unread(values: dict[str, Any]) -> None:
    """Drop a method's defaults for its model and server that another setting leaves unread."""
    named = values.get("method") or Experiment.model_fields["method"].default
    own, row = METHODS.get(str(named)), METHODS.get(str(values.get("backbone") or named))
    if own is None or row is None:
        return
    released = own.released_values(_protocol({}, values, own))
    chosen_by = {"released": released, "ours": [own.ours, row.ours], "paper": [own.as_written]}
    followed = chosen_by.get(values.get("fidelity", "ours"), [])
    server = values.get("aggregation")
    rule = RULES.get(str((server if isinstance(server, dict) else {}).get("rule", "mean")))
    for section, schema in (("model", row.settings), ("aggregation", None if rule is None else rule.settings)):
        chosen = values.get(section)
        if schema is None or not isinstance(chosen, dict):
            continue
        for given in (part.get(section, {}) for part in (*followed, own.defaults, row.defaults)):
            for name in unread_values(schema, chosen).keys() & given.keys():
                if chosen.get(name) == given[name]:
                    chosen.pop(name, None)


def _protocol(changes: Mapping[str, Any], values: Mapping[str, Any], row: Method) -> str:
    own = _in_section(changes, values, "protocol", "name") or row.defaults.get("protocol", {}).get("name")
    return str(own or ProtocolSettings.model_fields["name"].default)


def _in_section(changes: Mapping[str, Any], values: Mapping[str, Any], section: str, field: str) -> Any:
    whole = changes.get(section, values.get(section))
    return changes.get(f"{section}.{field}", whole.get(field) if isinstance(whole, Mapping) else None)


def _under(values: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Add missing values by section; a section of another kind (`name`, `rule`) is left alone."""
    for key, default in defaults.items():
        own = values.get(key)
        if isinstance(default, Mapping) and isinstance(own, dict):
            if all(own.get(kind, default.get(kind)) == default.get(kind) for kind in KINDS if kind in default):
                _under(own, default)
        elif key not in values or (own is None and isinstance(default, Mapping)):  # a null that was given is an answer
            values[key] = copy.deepcopy(dict(default) if isinstance(default, Mapping) else default)


def _fill(values: dict[str, Any], path: Sequence[str]) -> None:
    """Add defaults of missing sections on the way to `path`, so that one field can change."""
    schema: type[BaseModel] = Experiment
    for name in path[:-1]:
        field = schema.model_fields.get(name)
        default = None if field is None else field.get_default(call_default_factory=True)
        if not isinstance(default, BaseModel):
            return
        if values.get(name) is None:  # which entry of a table a section is of, its other keys say
            values[name] = {} if isinstance(default, Choice) else default.model_dump()
        if not isinstance(values[name], dict):
            return
        values, schema = values[name], type(default)


CHOICES = ("method", "backbone", "strategy", "fidelity", "protocol.name")
"""Fields that others start from: a description always has those that are not the default."""


def described(experiment: Experiment) -> str:
    """Return the experiment in words: `key=value` as `--set` takes them, of what is not as by default.

    Example: ``described(load_experiment(overrides=["rounds=3"])) == "<Experiment 'demo': rounds=3>"``
    """
    own, start = _leaves(read_values(experiment)), _leaves(read_values(_started(experiment)))
    chosen = _leaves(read_values(_started(None)))
    apart = {name: value for name, value in own.items() if name not in start or start[name] != value}
    apart |= {name: own[name] for name in CHOICES if own.get(name) != chosen.get(name)}
    ordered = [name for name in CHOICES if name in apart] + [name for name in apart if name not in CHOICES]
    said = ", ".join(f"{name}={_value(apart[name])}" for name in ordered if name != "name")
    return f"<Experiment '{experiment.name}': {said or 'as by default'}>"


def _started(experiment: Experiment | None) -> Experiment:
    """Return the experiment of someone who makes the same choices alone."""
    values = {} if experiment is None else _leaves(experiment.model_dump(include={n.split(".")[0] for n in CHOICES}))
    try:
        return load_experiment(**{name: values[name] for name in CHOICES if values.get(name) is not None})
    except InputError:  # these choices need another one, of data for example
        return load_experiment()


def _leaves(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= _leaves(value, f"{at}{key}.") if isinstance(value, Mapping) and value else {f"{at}{key}": value}
    return out


def _value(value: Any) -> str:
    shown = "null" if value is None else str(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}{MORE}"
