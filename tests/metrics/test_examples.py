"""The examples in the documentation of the metrics are right."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "metrics.continual",
        "metrics.significance",
        "simulation.evaluation.lists",
        "simulation.evaluation.ranking",
        "simulation.evaluation.references",
    ],
)
def test_examples_run(name):
    results = doctest.testmod(importlib.import_module(f"edgefr.{name}"))
    assert results.attempted > 0
    assert results.failed == 0
