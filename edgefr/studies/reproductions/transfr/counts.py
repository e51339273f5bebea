"""TransFR's Tables 2 and 3 are counted anew: categories of Amazon, and the tasks between two of them.

The two cross-domain sets whose archives are smaller are counted alike: the paper has no numbers of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgefr.data.datasets import load
from edgefr.data.filtering import kept, thinned
from edgefr.data.interactions import Dataset
from edgefr.studies.reproductions.statistics import Counts

_USER_CORE, _ITEM_CORE = 20, 30  # TransFR §4.1.1


@cache
def _domain(data: str, domain: str | None, data_dir: Path | None) -> Dataset:
    """Return a domain of a set of two, or a category of titled items, thinned as TransFR has it (§4.1.1)."""
    table = load(data, data_dir)
    if domain is None:
        titled = np.array([bool(title) for title in table.catalogue.title])
        return thinned(kept(table, titled[table.item]), "keep", _USER_CORE, _ITEM_CORE)
    part = kept(table, (table.catalogue.domain == table.domains.index(domain))[table.item])
    return replace(part, domains=table.domains)


def _domains(label: str, data: Sequence[str], data_dir: Path | None) -> list[Dataset]:
    """Return the domains that a line names: "Music to Books", each a data set, or "book to movie of <data set>"."""
    named = label.removesuffix(f" of {data[0]}").split(" to ")
    if label.endswith(f" of {data[0]}"):
        return [_domain(data[0], domain, data_dir) for domain in named]
    return [_domain(each, None, data_dir) for each in data]


def sizes(label: str, data: Sequence[str], data_dir: Path | None) -> Counts:
    """Count a line of Table 2."""
    (table,) = _domains(label, data, data_dir)
    found = table.statistics()
    titles = [table.catalogue.title[item] for item in np.unique(table.item).tolist()]
    words = [len(title.split()) for title in titles if title]
    out = {name: float(found[name]) for name in ("users", "items")} | {"ratings": float(found["interactions"])}
    return out | {"ratings per user": found["interactions"] / found["users"], "words of a title": float(np.mean(words))}


def overlaps(label: str, data: Sequence[str], data_dir: Path | None) -> Counts:
    """Count a line of Table 3: users of both domains, and the items that these have in each."""
    source, target = _domains(label, data, data_dir)
    shared = np.intersect1d(source.users, target.users)
    items = {"source items": _items(source, shared), "target items": _items(target, shared)}
    return {"overlapping users": len(shared), **items}


def _items(table: Dataset, users: npt.NDArray[np.str_]) -> int:
    return len(np.unique(table.item[np.isin(table.users, users)[table.user]]))
