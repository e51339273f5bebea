"""The page on how to cite is made from CITATION.cff."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CITATION = ROOT / "CITATION.cff"
SINCE = 2026
"""The year of the software that is cited, until CITATION.cff has the day of a release."""
KINDS = {"software": "software", "article": "article", "conference-paper": "inproceedings"}
"""Kinds of BibTeX by those of CITATION.cff."""


def cite_page() -> str:
    """Return the page: edgefr, and the paper of every method that it runs."""
    found = yaml.safe_load(CITATION.read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found |= {"version": project["version"], "year": str(found.get("date-released", SINCE))[:4]}
    out = ["# How to cite", "", f"{found['message']} Both are in `CITATION.cff`, which this page is made from.", ""]
    for work in (found, *found["references"]):
        out += [f"## {work['title'].split(':')[0]}", "", "```bibtex", bibtex(work), "```", ""]
    return "\n".join(out)


def bibtex(work: Mapping[str, Any]) -> str:
    """Return a work as BibTeX."""
    names = [
        ", ".join(filter(None, map(who.get, ("family-names", "given-names")))) or who["name"] for who in work["authors"]
    ]
    first, year = names[0].split(",")[0].removeprefix("The ").split()[0].lower(), work.get("year", "")
    journal = work.get("journal") or work.get("collection-title")
    fields = {
        "title": f"{{{work['title']}}}",
        "author": " and ".join(names if "family-names" in work["authors"][0] else [f"{{{names[0]}}}"]),
        "year": year,
        "version": work.get("version"),
        "booktitle" if work["type"] == "conference-paper" else "journal": journal,
        "volume": work.get("volume"),
        "number": work.get("issue"),
        "pages": f"{work['start']}--{work['end']}" if "start" in work else None,
        "doi": work.get("doi"),
        "note": next((one["value"] for one in work.get("identifiers", ())), None),
        "url": work.get("url"),
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@{KINDS[work['type']]}{{{first}{year},", *lines, "}"])
