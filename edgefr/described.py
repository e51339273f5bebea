"""An experiment is described by what differs from what its choices start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgefr.belongs import read_values
from edgefr.report.brief import MORE
from privacy.errors import InputError

if TYPE_CHECKING:
    from edgefr.experiment import Experiment

CHOICES = ("method", "backbone", "strategy", "fidelity", "protocol.name")
"""Fields that others start from: those always stand there where they are not the default."""


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
    """Return the experiment that somebody gets who makes the same choices alone."""
    from edgefr.experiment import load_experiment

    values = {} if experiment is None else _leaves(experiment.model_dump(include={n.split(".")[0] for n in CHOICES}))
    try:
        return load_experiment(**{name: values[name] for name in CHOICES if values.get(name) is not None})
    except InputError:  # these choices need another one, of data for example
        return load_experiment()


def _leaves(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """Return the values of nested mappings by dotted name."""
    return dict(_under(values, at))


def _under(values: Mapping[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _under(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


def _value(value: Any) -> str:
    shown = "null" if value is None else str(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}{MORE}"
