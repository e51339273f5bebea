"""The public names and the examples in the documentation of pure modules."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import edgefr

PUBLIC = [
    "Dataset",
    "Experiment",
    "FleetFile",
    "InputError",
    "Run",
    "export_run",
    "load_data",
    "load_experiment",
    "load_fleet",
    "register",
    "resume",
    "simulate",
    "simulate_seeds",
]
ROOT = Path(__file__).parents[1]
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for room in ("edgefr", "cloud", "export", "edge", "privacy")
    for path in (ROOT / room).rglob("*.py")
    if ">>> " in path.read_text()
)


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
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_examples_are_found() -> None:
    assert {"edgefr", "edge.replay", "privacy.keyed", "export.steps"} <= set(WITH_EXAMPLES)
    assert doctest.testmod(importlib.import_module("privacy.keyed")).attempted > 1


def test_public_functions_say_what_they_raise() -> None:
    for name in ("export_run", "load_data", "load_experiment", "load_fleet", "simulate"):
        text = " ".join(inspect.getdoc(getattr(edgefr, name)).split())
        assert "InputError" in text, name
