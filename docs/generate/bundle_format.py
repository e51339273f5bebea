"""The schemas of a bundle's JSON files, and the lists of fields in docs/bundle-format.md, are made of the records.

`python docs/generate/bundle_format.py` writes them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from edge.clients import ItemIds, UserIds
from edge.delta import Facts
from edge.manifest import Config, Manifest
from edge.signature import KeyChain, Signature
from edge.update import OpenFacts, SealedFacts

DOCS = Path(__file__).resolve().parents[1]
PAGE = DOCS / "bundle-format.md"
RECORDS: dict[str, Any] = {
    "manifest": Manifest,
    "config": Config,
    "ids": ItemIds,
    "users": UserIds,
    "signature": Signature,
    "keys": KeyChain,
    "delta": Facts,
    "release-sealed": SealedFacts,
    "release-open": OpenFacts,
}
"""Every JSON record of the format by the name of its schema."""


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a record, by the names that its fields have in the file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | RECORDS[name].model_json_schema(by_alias=True)


def written(name: str) -> str:
    return json.dumps(schema(name), indent=1, ensure_ascii=False) + "\n"


def fields(name: str) -> str:
    """Return tables of a record's fields and of all records in it, in the order in which they are met."""
    whole = schema(name)
    parts = [table(whole)]
    for title, inner in whole.get("$defs", {}).items():
        if "properties" in inner:
            parts.append(f"`{title}`:\n\n{table(inner)}")
    return "\n\n".join(parts)


def table(record: dict[str, Any]) -> str:
    rows = ["| field | type | what it is |", "|---|---|---|"]
    for field, told in record["properties"].items():
        said = told.get("description", "")
        rows.append(
            f"| `{field}` | {kind(told)}{'' if field in record.get('required', []) else ', may be left out'} | {said} |"
        )
    return "\n".join(rows)


def kind(told: dict[str, Any]) -> str:
    """Return the type of a field in a word or two."""
    if "$ref" in told:
        return f"`{told['$ref'].rpartition('/')[2]}`"
    if "const" in told:
        return f"`{json.dumps(told['const'])}`"
    if "enum" in told:
        return " or ".join(f"`{one}`" for one in told["enum"])
    for several in ("anyOf", "oneOf"):
        if several in told:
            return " or ".join(dict.fromkeys(kind(one) for one in told[several]))
    if told.get("type") == "array":
        return f"list of {kind(told.get('items', {}))}"
    if told.get("type") == "object" and isinstance(told.get("additionalProperties"), dict):
        return f"object of {kind(told['additionalProperties'])} by name"
    return str(told.get("type", "anything"))


def page(text: str) -> str:
    """Return the page with its lists of fields as the code has them."""
    pattern = re.compile(r"(<!-- fields of ([\w-]+) -->\n)(?:(?!<!--).)*(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda found: f"{found[1]}\n{fields(found[2])}\n\n{found[3]}", text)


if __name__ == "__main__":
    for one in RECORDS:
        (DOCS / "schemas" / f"{one}.json").write_text(written(one), encoding="utf-8")
    if PAGE.exists():
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
