"""A survey of a data set is shown: what it holds, over which protocols it runs, settings to start from."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml
from rich.console import Console
from rich.text import Text

from edgefr.data.interactions import Dataset
from privacy.errors import InputError


@dataclass(frozen=True)
class ProtocolFit:
    """A protocol tests so many users of a data set (0: it does not fit, and `why` says what is missing)."""

    protocol: str
    tested: int
    why: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Survey:
    """A survey holds a data set, what every protocol says of it, and the settings to start from (none: none fits).

    `probe`: what texts, popularity and item-kNN are worth there (none: nothing was asked).
    """

    dataset: Dataset
    fits: tuple[ProtocolFit, ...]
    start: Mapping[str, Any] | None
    probe: str | None = None


def settings_of(found: Survey) -> str:
    """Return the settings to start from as an experiment file. Raises `InputError` where no protocol fits."""
    if found.start is None:
        raise InputError(f"no protocol fits '{found.dataset.name}', so there are no settings to write: use more data")
    return yaml.safe_dump(dict(found.start), sort_keys=False)


def print_survey(found: Survey, console: Console) -> None:
    """Print a survey; the settings come last, as an experiment file."""
    for label, line in _lines(found):
        _labelled(console, f"{label:<13}", line)
    console.print()
    for fit in found.fits:
        line = f"fits: {fit.tested:,} users are tested" if fit.tested else f"does not fit: {fit.why}"
        _labelled(console, f"{fit.protocol:<14} ", line, "" if fit.tested else "dim")
    if found.probe is not None:
        _labelled(console, "probe          ", found.probe)
    console.print()
    if found.start is None:
        console.print(Text("No protocol fits: use more data, or lower what is asked for above."))
        return
    console.print(Text("Settings to start from; --out FILE writes them, for: edgefr simulate --experiment FILE"))
    console.print(Text(settings_of(found).rstrip()), soft_wrap=True)


def _labelled(console: Console, label: str, words: str, style: str = "") -> None:
    """Print words beside their label, and what does not fit into the line below them."""
    found = textwrap.wrap(words, max(20, console.width - len(label)), break_on_hyphens=False, break_long_words=False)
    for place, line in enumerate(found or [""]):
        console.print(Text(" " * len(label) if place else label, style="bold"), Text(line, style=style), sep="")


def _lines(found: Survey) -> Iterator[tuple[str, str]]:
    """Yield what a data set holds, a line for each thing."""
    dataset, counts = found.dataset, found.dataset.statistics()
    source, each = dataset.source, counts["items_per_user"]
    yield "data", f"{dataset.name} ({source.get('archive', '')})"
    if source.get("url"):
        yield "from", f"{source['url']} (licence: {source['licence']})"
    if source.get("columns"):
        yield "columns", ", ".join(f"{role}: {name}" for role, name in source["columns"].items())
    yield (
        "users",
        f"{counts['users']:,}, with {each['min']:,} to {each['max']:,} interactions, median {each['median']:g}",
    )
    idle = counts["listed_items"] - counts["items"]
    more = f", and {idle:,} more are listed that nobody has: they are ranked, too" if idle else ""
    yield "items", f"{counts['items']:,}{more}"
    yield "interactions", f"{counts['interactions']:,}, of which {counts['repeated_pairs']:,} repeat an item"
    if source.get("rows"):
        missing = source["rows"] - counts["interactions"]
        why = f"; the notes say why {missing:,} are left out" if missing > 0 and source.get("notes") else ""
        yield "rows read", f"{source['rows']:,}{why}"
    yield "density", f"{counts['density']:.3%} of all pairs of user and item"
    yield "time", _time(found)
    yield "earliest", _row(found.dataset, int(dataset.moment.argmin()))
    yield "latest", _row(found.dataset, int(dataset.moment.argmax()))
    texts = f"{counts['items_with_text']:,} of {counts['listed_items']:,} items"
    if source.get("texts"):
        texts += f", of {', '.join(source['texts'])}"
    elif source.get("columns"):
        texts += "; a file with them is named by data_options.items, columns of the interactions by data_options.texts"
    yield "texts", texts
    if source.get("ratings"):
        low, mean, high = source["ratings"]
        yield "ratings", f"{low:g} to {high:g}, mean {mean:.2f}; data_options.positive=R counts those from R on alone"
    if len(dataset.domains) > 1:
        yield "domains", ", ".join(f"{name}: {of['interactions']:,}" for name, of in counts["domains"].items())
    if dataset.session is not None:
        yield "sessions", f"{len(np.unique(dataset.session)):,}"
    if dataset.part is not None:
        parts = zip(("train", "valid", "test"), np.bincount(dataset.part, minlength=3), strict=False)
        yield "split", ", ".join(f"{name}: {number:,}" for name, number in parts)
    if source.get("notes"):
        yield "notes", source["notes"]


def _row(dataset: Dataset, row: int) -> str:
    """Return an interaction as it was understood, its time in the file's own unit."""
    user, item = dataset.users[dataset.user[row]], dataset.catalogue.ids[dataset.item[row]]
    moment, second = int(dataset.moment[row]), int(dataset.time[row])
    if not dataset.clock or not second:
        return f"{user}, {item}, place {moment:,}"
    digits = round(math.log10(moment / second))
    fraction = f".{moment - second * 10**digits:0{digits}}" if digits else ""
    return f"{user}, {item}, {str(np.datetime64(second, 's')).replace('T', ' ')}{fraction} UTC"


def _time(found: Survey) -> str:
    dataset = found.dataset
    if not dataset.clock or not len(dataset.time):
        if "time" in dataset.source.get("columns", {}):
            return "an order alone; if it is a clock, say its unit or pattern by data_options.time"
        return "none, an order alone; a column of times is named by data_options.columns.time"
    first, last = (np.datetime64(int(at), "s") for at in (dataset.time.min(), dataset.time.max()))
    return f"{str(first)[:10]} to {str(last)[:10]}, {int((last - first) / np.timedelta64(1, 'D')):,} days"
