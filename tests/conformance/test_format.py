"""The page of the format and its schemas are those of the code, and of every bundle of the kit."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from edge.delta import read_delta
from edge.tensors import parse
from privacy import keyed

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "bundle-format.md").read_text(encoding="utf-8")
CASES = sorted(path.parent for path in (ROOT / "conformance").glob("*/manifest.json"))
MADE: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "generate" / "bundle_format.py"))


@pytest.mark.parametrize("name", MADE["RECORDS"])
def test_schemas_are_those_of_the_code(name: str) -> None:
    """Write them again with `python docs/generate/bundle_format.py`."""
    assert (ROOT / "docs" / "schemas" / f"{name}.json").read_text(encoding="utf-8") == MADE["written"](name)


def test_the_page_lists_the_fields_that_the_code_has() -> None:
    assert MADE["page"](PAGE) == PAGE
    listed = set(re.findall(r"<!-- fields of ([\w-]+) -->", PAGE))
    assert listed == set(MADE["RECORDS"]) - {"users", "keys"}, "these two no device needs to read"


def test_a_field_that_is_missing_from_the_page_is_seen() -> None:
    assert "| `serial` |" in PAGE
    assert MADE["page"](re.sub(r"\n\| `serial` \|.*", "", PAGE)) == PAGE


def schema(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((ROOT / "docs" / "schemas" / f"{name}.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_bundles_are_as_the_schemas_say(case: Path) -> None:
    """Every field that a bundle's files have is one of its schema, and none is missing."""
    for file, name in (
        ("manifest", "manifest"),
        ("config", "config"),
        ("manifest.sig", "signature"),
        ("index/ids", "ids"),
    ):
        found = json.loads((case / f"{file}.json").read_text(encoding="utf-8"))
        schema(name).validate(found)
        assert not schema(name).is_valid({**found, "other": 1}), "a field that nobody knows"
    for field in json.loads((case / "manifest.json").read_text(encoding="utf-8")):
        assert f"| `{field}` |" in PAGE


def test_updates_are_as_the_schema_says() -> None:
    updates = sorted((ROOT / "conformance" / "updates").glob("*.safetensors"))
    assert len(updates) == len(CASES)
    for path in updates:
        file = parse(path.read_bytes())
        assert list(file.metadata) == ["delta"]
        schema("delta").validate(json.loads(file.metadata["delta"]))
        assert read_delta(path).signed_by is not None


def test_draws_are_as_the_page_says() -> None:
    values = dict(re.findall(r"^\| `([^`]+)` \| ([^|]+) \|$", PAGE, re.MULTILINE))
    assert int(values['key(0, "cohort", 3)'], 16) == keyed.key(0, "cohort", 3)
    assert int(values['key(0, "federated negatives", 3, 0)'], 16) == keyed.key(0, "federated negatives", 3, 0)
    assert [int(values[f"bits(0, {n})"], 16) for n in (0, 1)] == [int(keyed.bits(0, n)) for n in (0, 1)]
    drawn = keyed.integers(keyed.key(0, "doctest"), np.arange(4), 10).tolist()
    assert values['integer(key(0, "doctest"), 0 to 3, 10)'] == ", ".join(map(str, drawn))
    assert float(values["normal(0, 0)"]) == float(keyed.normal(0, 0))
