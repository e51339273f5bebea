"""Experiments' scripts can be read: one that the code has moved away from repeats nothing."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "experiments"
SCRIPTS = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py"))
OURS = ("cloud", "edge", "edgefr", "export", "privacy")


def of_ours(tree: ast.Module) -> list[tuple[str, str]]:
    """Return the modules of the project that a script imports from, each with the name that it takes."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return [(str(node.module), alias.name) for node in found for alias in node.names if is_ours(str(node.module))]


def is_ours(module: str) -> bool:
    return module.split(".")[0] in OURS


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_script_takes_from_the_project_is_there(script: str) -> None:
    for module, name in of_ours(ast.parse((ROOT / script).read_text("utf-8"))):
        held = importlib.import_module(module)
        assert hasattr(held, name) or importlib.import_module(f"{module}.{name}"), f"{module} has no {name}"


def test_a_name_that_is_gone_is_found() -> None:
    assert of_ours(ast.parse("from edgefr.run import Gone\nfrom numpy import array")) == [("edgefr.run", "Gone")]
    assert not hasattr(importlib.import_module("edgefr.run"), "Gone")
