"""A survey says what a data set holds, over which protocols it can be run, and which settings to start from.

Owns: asking every protocol, and the settings. Does not own: how it is shown (`edgefr.report.survey`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgefr.data import datasets as data
from edgefr.data.interactions import Dataset
from edgefr.data.protocol import PROTOCOLS, Protocol
from edgefr.data.splits.blocks import Block
from edgefr.data.splits.split import Split
from edgefr.experiment.experiment import Change, Experiment, load_experiment
from edgefr.experiment.method import METHODS, Method
from edgefr.report.survey import ProtocolFit, Survey
from edgefr.simulation.probe import Probe, most_have_text, probe
from edgefr.simulation.protocols.protocol import protocol_of
from privacy.errors import InputError
from privacy.progress import Progress

_MANY = 1000  # users of whom a round takes all


def survey(
    name: str,
    options: Mapping[str, Any] | None = None,
    data_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> Survey:
    """Load a data set and ask every protocol about it. Raises `InputError` as `edgefr.load_data`.

    >>> found = survey("demo", {"users": 50, "items": 160})
    >>> [fit.protocol for fit in found.fits if fit.tested], found.start["method"]
    (['leave-one-out', 'cross-domain', 'holdout'], 'transfr')
    """
    dataset = data.load(name, data_dir, 0, dict(options or {}), progress)
    fits = tuple(_fit(entry, dataset) for entry in PROTOCOLS.values())
    found = _probe(dataset, fits)
    return Survey(
        dataset, fits, _start(name, dict(options or {}), dataset, fits, found), None if found is None else str(found)
    )


def _probe(dataset: Dataset, fits: Sequence[ProtocolFit]) -> Probe | None:
    """Return what a probe finds on validation items of leave-one-out; None with sessions, or where it does not fit."""
    fit = next((fit for fit in fits if fit.protocol == "leave-one-out" and fit.tested), None)
    if fit is None or dataset.session is not None:
        return None
    experiment = _experiment(PROTOCOLS[fit.protocol], fit.values)
    return probe(dataset, protocol_of(experiment).cut(experiment, dataset).train_split)


def _fit(entry: Protocol, dataset: Dataset) -> ProtocolFit:
    """Cut the data set by a protocol, and say how many users it tests or why it cannot."""
    try:
        values = _values(entry, dataset)
        tested = _tested(_experiment(entry, values), dataset)
    except InputError as error:
        return ProtocolFit(entry.name, 0, str(error), {})
    return ProtocolFit(entry.name, tested, "" if tested else "no user can be tested", values)


def _values(entry: Protocol, dataset: Dataset) -> dict[str, Any]:
    """Return the settings of a protocol that this data set needs: those that have no default, or too high a one."""
    fields, values = entry.settings.model_fields, dict[str, Any]()
    if {"source", "target"} <= fields.keys():
        if len(dataset.domains) < 2:
            raise InputError(
                "it needs two domains, and there is one; a column of domains is named by data_options.columns.domain"
            )
        values |= {"source": dataset.domains[0], "target": dataset.domains[1]}
    if "negatives" in fields:
        room = _room(dataset, values)
        if room < fields["negatives"].default:
            values["negatives"] = max(1, room)
    return values


def _room(dataset: Dataset, values: Mapping[str, Any]) -> int:
    """Return how many items the user with most of them leaves to draw from, within the smallest domain asked for."""
    domain, rooms = dataset.catalogue.domain, []
    numbers = [dataset.domains.index(values[key]) for key in ("source", "target") if key in values]
    for pool in [domain == number for number in numbers] or [np.ones(len(domain), bool)]:
        rows = pool[dataset.item]
        pairs = np.unique(dataset.user[rows].astype(np.int64) * len(domain) + dataset.item[rows])
        rooms.append(int(pool.sum()) - int(np.bincount(pairs // len(domain), minlength=1).max()))
    return min(rooms)


def _experiment(entry: Protocol, values: Mapping[str, Any]) -> Experiment:
    """Return an experiment over a protocol, of the first method that can learn there and reads no texts."""
    row = next(row for row in METHODS.values() if row.reads in entry.reads and not row.needs_text)
    changes = [Change("method", row.name, "method"), Change("protocol.name", entry.name, "protocol.name")]
    changes += [Change(f"protocol.{key}", value, f"protocol.{key}") for key, value in values.items()]
    return load_experiment(overrides=changes)


def _tested(experiment: Experiment, dataset: Dataset) -> int:
    """Return how many users the tasks of a protocol test, in whichever of them the most are."""
    prepared = protocol_of(experiment).cut(experiment, dataset)
    tasks: list[Split | Block] = [*prepared.splits.values(), *prepared.blocks]
    return max((len(task.users("test")) for task in tasks), default=0)


def _start(
    name: str, options: dict[str, Any], dataset: Dataset, fits: tuple[ProtocolFit, ...], found: Probe | None
) -> Mapping[str, Any] | None:
    """Return settings of an experiment to start from: over the first protocol that fits, by a method that can."""
    tested = [fit for fit in fits if fit.tested]
    if not tested:
        return None
    in_sessions = [fit for fit in tested if "sessions" in PROTOCOLS[fit.protocol].reads]
    fit = (in_sessions if dataset.session is not None and in_sessions else tested)[0]
    users = len(np.unique(dataset.user))
    share = {"clients_per_round": 1.0 if users <= _MANY else _MANY}
    return {
        "name": data.plain_name(dataset.name),
        "data": name,
        **({"data_options": options} if options else {}),
        "method": _method(PROTOCOLS[fit.protocol], dataset, found).name,
        "protocol": {"name": fit.protocol, **fit.values},
        **share,
    }


def _method(entry: Protocol, dataset: Dataset, found: Probe | None) -> Method:
    """Return the first method over a protocol: one that reads texts where most items have some that carry, or another.

    Without a probe all texts are taken to carry.
    """
    texts = most_have_text(dataset) and (found is None or found.texts_carry)
    able = [row for row in METHODS.values() if row.reads in entry.reads and row.central is None]
    fit = [row for row in able if not row.own_rows]
    if dataset.session is not None and "sessions" in entry.reads:
        fit = [row for row in fit if row.reads == "sessions"]
    return next((row for row in fit if row.needs_text and texts), next(row for row in fit if not row.needs_text))
