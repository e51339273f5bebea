"""The public names and the examples in the documentation of pure modules."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest

import edgefr

PUBLIC = [
    "Experiment",
    "FleetFile",
    "InputError",
    "Run",
    "export_run",
    "load_data",
    "load_experiment",
    "load_fleet",
    "resume",
    "simulate",
    "simulate_seeds",
]
WITH_EXAMPLES = [
    "edgefr",
    "edgefr.data",
    "edgefr.data.demo",
    "edgefr.data.protocols",
    "edgefr.documents",
    "edge.sampling",
    "edgefr.data.blocks",
    "edgefr.experiment",
    "edgefr.fleet.spec",
    "edgefr.fleet.table",
    "edgefr.fleet.work",
    "edge.replay",
    "edgefr.methods.f3crec.settings",
    "edgefr.methods.f3crec.strategies",
    "edgefr.methods.fedmf.program",
    "edgefr.methods.transfr.program",
    "edgefr.metrics.ranking",
    "edgefr.report.layout",
    "edgefr.report.tables",
    "privacy.errors",
    "privacy.files",
    "privacy.keyed",
]


def test_the_public_names_are_these() -> None:
    assert edgefr.__all__ == PUBLIC
    assert dir(edgefr) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_stays_there(name: str) -> None:
    first = getattr(edgefr, name)
    assert inspect.isclass(first) or inspect.isfunction(first)
    assert inspect.getdoc(first)
    importlib.import_module(first.__module__)
    assert getattr(edgefr, name) is first, "importing its home must not hide it"


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = edgefr.simulat


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


def test_public_functions_say_what_they_raise() -> None:
    for name in ("export_run", "load_data", "load_experiment", "load_fleet", "simulate"):
        text = " ".join(inspect.getdoc(getattr(edgefr, name)).split())
        assert "InputError" in text, name
