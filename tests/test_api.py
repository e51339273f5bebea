"""The public names and the examples in the documentation of pure modules."""

from __future__ import annotations

import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import edgefr

PUBLIC = [
    "Dataset",
    "Experiment",
    "FleetFile",
    "InputError",
    "Run",
    "audit",
    "calibrate",
    "compare",
    "cost_of",
    "explain",
    "export",
    "load_data",
    "load_experiment",
    "load_fleet",
    "map_items",
    "register",
    "reproduce",
    "resume",
    "simulate",
    "simulate_seeds",
    "sweep",
    "tune",
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
    for name in (
        "audit",
        "calibrate",
        "export",
        "reproduce",
        "sweep",
        "load_data",
        "load_experiment",
        "load_fleet",
        "simulate",
    ):
        text = " ".join(inspect.getdoc(getattr(edgefr, name)).split())
        assert "InputError" in text, name


def test_taking_all_names_is_light() -> None:
    heavy = ("torch", "transformers", "pandas", "pyarrow", "matplotlib")
    code = f"from edgefr import *; import sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["audit", "calibrate", "export", "reproduce", "resume", "simulate", "sweep"])
def test_every_function_shows_an_example(name: str) -> None:
    assert f"Example: ``edgefr.{name}(" in inspect.getdoc(getattr(edgefr, name))
