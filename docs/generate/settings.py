"""Pages of settings are made from the models that read them: every field with its values, default and description."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from inspect import cleandoc
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from edgefr.data.datasets import READERS
from edgefr.experiment.continual import STRATEGIES
from edgefr.experiment.experiment import Experiment
from edgefr.experiment.method import METHODS
from edgefr.fleet import FleetFile
from edgefr.fleet.calibration import Calibration
from edgefr.fleet.spec import Figure
from privacy.setting_scope import EntryName, ReadWith, ReadWithout, default_of
from privacy.table import Choice, Table

NAMES: Mapping[str, Table[Any]] = {"method": METHODS, "backbone": METHODS, "strategy": STRATEGIES, "data": READERS}
"""Fields of an experiment whose values are names of a table that no type says."""

ELSEWHERE = {"model": "methods.md#methods", "data_options": "methods.md#data-sets", "fleet": "fleet.md"}
"""Fields of an experiment whose own fields are on another page."""

NAMED = {Figure: "[a figure](#a-figure)", Calibration: "what `edgefr calibrate` writes"}
"""Models that many fields are of, or that nobody writes by hand; they are told of once, or not at all."""

SIGNS = {Ge: "≥ {}", Gt: "> {}", Le: "≤ {}", Lt: "< {}"}

EXPERIMENT = """# An experiment's settings

Made from the models that read them. A file has these fields as YAML; `--set privacy.clip=1` sets one. Unknown names are
refused, and so is a setting that nothing reads beside the others. A method starts from values of its own where they
differ from the defaults here: [settings of methods](methods.md).

"""

MODELS = """# Settings of methods and data sets

`model.*` are the settings of the chosen method, `data_options.*` those of the chosen data set. "Starts from" are values
of other sections that the method begins with; a file or `--set` goes before them.

"""

FLEET = """# The fleet file

`devices.yaml` is one. `<name>` stands for a name of your own.

"""


def experiment_page() -> str:
    """Return the page of an experiment's fields, section by section."""
    return EXPERIMENT + "\n".join(section(Experiment, None, "", "", 2))


def methods_page() -> str:
    """Return the page of every method's and every data set's own settings."""
    out = [MODELS, "## Methods", ""]
    for method in METHODS.values():
        out += [f"### {method.name}", "", f"{method.paper}.", ""]
        for said, values in (("Starts from", method.defaults), ("With `fidelity: ours`", method.ours)):
            out += [f"{said}: " + ", ".join(f"`{name}={shown(v)}`" for name, v in leaves(values)) + ".", ""] * bool(
                values
            )
        out += table(method.settings, None, f"model of {method.name}")
    out += ["## Data sets", ""]
    for reader in READERS.values():
        out += [f"### {reader.name}", "", f"{reader.holds or 'Anything of your own'}.", ""]
        out += table(reader.options, None, f"data of {reader.name}")
    return "\n".join(out)


def fleet_page() -> str:
    """Return the page of a fleet file's fields."""
    figure = ["## A figure", "", "A bare number counts as an estimate.", "", *table(Figure, None, "")]
    return FLEET + "\n".join([*section(FleetFile, None, "", "", 2), *figure])


def section(model: type[BaseModel], values: BaseModel | None, at: str, said: str, level: int) -> Iterator[str]:
    """Return the lines of a section and of those within it; `values` has the defaults where its owner sets others."""
    yield from (f"{'#' * level} {cell(at) or 'The whole'}", "", f"{said[:1].upper()}{said[1:]}." if said else "", "")
    base = choice_of(model)
    yield from table(base or model, values, at)
    if base is not None:
        for entry in base.table.values():
            if entry.settings is not None:
                yield from chosen(entry, base, at, level + 1)
    for field, info in (base or model).model_fields.items():
        for inner, through in models_in(info.annotation):
            own = getattr(values, field, None) if values is not None else default_of(info)
            own = own if isinstance(own, BaseModel) else None
            place = ".".join(filter(None, (at, field, through)))
            yield from section(inner, own, place, info.description or "", min(level + 1, 3))


def choice_of(model: type[BaseModel]) -> type[Choice] | None:
    """Return the base class of a table's settings where a model is one."""
    return model if issubclass(model, Choice) and "table" in vars(model) else None


def chosen(entry: Any, base: type[Choice], at: str, level: int) -> Iterator[str]:
    """Return the lines of what one entry of a table reads beside what all do."""
    own = [name for name in entry.settings.model_fields if name not in base.model_fields]
    yield from (f"{'#' * level} {at}, {base.key}={entry.name}", "")
    yield first_line(type(entry)) + (f" {cited}." if (cited := getattr(entry, "citation", "")) else "")
    yield ""
    yield from table(entry.settings, None, at, own) if own else ()


def table(model: type[BaseModel], values: BaseModel | None, at: str, names: list[str] | None = None) -> list[str]:
    """Return the rows of a model's fields that are no sections themselves."""
    rows = []
    for name in model.model_fields if names is None else names:
        info = model.model_fields[name]
        if next(models_in(info.annotation), None) and not optional(info.annotation):
            continue
        default = getattr(values, name) if values is not None else default_of(info)
        said = cell((info.description or "") + "".join(beside(part) for part in info.metadata))
        key = isinstance(model, type) and issubclass(model, Choice) and name == model.key
        kind = names_of(model.table) if key and "table" in vars(model) else kind_of(name, info, model)
        default = (
            f"`{cell(shown(default))}`" if type(default) is not object else "needed"
        )  # a bare object: there is none
        rows.append(f"| `{info.alias or name}` | {default} | {said}<br>*{kind}* |")
    if not rows:
        return ["Nothing to set.", ""] if names is None and not model.model_fields else []
    return ["| field | default | what, and *which values* |", "|---|---|---|", *rows, ""]


def kind_of(name: str, info: FieldInfo, model: type[BaseModel]) -> str:
    """Return which values a field takes: the names of its table, its choices, or its type and bounds."""
    if model is Experiment and name in NAMES:
        return names_of(NAMES[name])
    if model is Experiment and name in ELSEWHERE:
        return f"[a mapping]({ELSEWHERE[name]})"
    for part in info.metadata:
        named = getattr(part, "func", None)
        if isinstance(named, EntryName):
            return names_of(named.table)
    bounds = [SIGNS[type(part)].format(shown(vars_of(part))) for part in info.metadata if type(part) in SIGNS]
    return " ".join([plain(info.annotation), *bounds])


def vars_of(bound: Any) -> Any:
    """Return the value of a bound such as `Ge(ge=1)`."""
    return next(getattr(bound, name) for name in ("ge", "gt", "le", "lt") if hasattr(bound, name))


def names_of(entries: Table[Any]) -> str:
    """Return the names of a table's entries that can be chosen."""
    return ", ".join(f"`{entry.name}`" for entry in entries.values() if getattr(entry, "settings", "") is not None)


def plain(annotation: Any) -> str:
    """Return a type in words."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return plain(parts[0])
    if origin is Literal:
        return ", ".join(f"`{shown(part)}`" for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join("none" if part is type(None) else plain(part) for part in parts)
    if origin is list:
        return f"list of {plain(parts[0])}"
    if origin is tuple:
        return f"{len(parts)} values" if Ellipsis not in parts else f"list of {plain(parts[0])}"
    if origin is dict or annotation is dict:
        return "mapping"
    words: dict[Any, str] = {**NAMED, int: "whole number", float: "number", str: "text", bool: "`true`, `false`"}
    return words.get(annotation, "mapping" if isinstance(annotation, type) else "any")


def optional(annotation: Any) -> bool:
    """Say whether a field may be none."""
    return type(None) in get_args(annotation)


def models_in(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """Return the models that a field's type is made of, and how one comes to them in a mapping: by `<name>`."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from [(annotation, "")] * (annotation not in NAMED)
    elif origin is dict:
        yield from ((model, ".".join(filter(None, ("<name>", through)))) for model, through in models_in(parts[1]))
    elif origin in (Annotated, Union, types.UnionType):
        yield from (found for part in parts for found in models_in(part))


def beside(part: Any) -> str:
    """Return with which others a setting is read."""
    if not isinstance(part, ReadWith):
        return ""
    values = " or ".join(shown(value) for value in part.values)
    return (
        f" (unless `{part.choice}` is {values})" if isinstance(part, ReadWithout) else f" (`{part.choice}`: {values})"
    )


def leaves(values: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """Return nested values by dotted name."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{at}{name}.")
        else:
            yield f"{at}{name}", value


def shown(value: Any) -> str:
    """Return a value as a file has it, on one line."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()


def cell(text: str) -> str:
    """Return a text that keeps within its cell and is shown as it stands."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def first_line(kind: type) -> str:
    """Return the first sentence of a class's docstring."""
    return cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " ")
