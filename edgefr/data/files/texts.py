"""Items get their texts from a file with a row for each item, or from columns beside the interactions.

Owns: which text an item has. Does not own: finding columns (`names`), vectors (`cloud`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgefr.data.files import names
from edgefr.data.files.arrow import pa, pc
from edgefr.data.files.checked_values import ids
from edgefr.data.files.options import FileOptions
from edgefr.data.files.rows import by_appearance
from edgefr.data.files.streams import faults, printable
from edgefr.data.files.table import Column, OpenTable, is_text
from edgefr.data.interactions import Catalogue, Dataset
from privacy.errors import InputError
from privacy.plain_text import plain

_LONGEST = 4000  # characters of one column of an item: more than 512 tokens ever need


def described(dataset: Dataset, table: OpenTable, item: str, options: FileOptions) -> Dataset:
    """Return the data set with the texts of a table of items; an item's first row counts.

    `item` names the interactions' item column. Raises `InputError` where the table knows none of the items.
    """
    key = names.listed(options.columns.listed, item, table.columns, table.name)
    columns = names.texts(options.texts, table.columns, table.name, (key,))
    where = (
        names.find("domain", options.columns.domain, table.columns, table.name) if len(dataset.domains) == 1 else None
    )
    found = _Found(dataset, table.name, columns)
    domain: list[pa.DictionaryArray] = []
    for row, block in table.read(list(dict.fromkeys([key, *columns, *([where] if where else [])]))):
        known, items = found.add(ids(Column(table.name, row, key, block[key])), block)
        if where is not None:
            domain.append((items, ids(Column(table.name, row, where, block[where])).take(known)))
    if not found.seen.any():
        first = dataset.catalogue.ids[0] if len(dataset.catalogue) else ""
        raise InputError(
            f"{table.name}: its column {key} has none of the items of '{dataset.name}' (the first is '{first}'); name "
            "another by data_options.columns.listed"
        )
    dataset = replace(dataset, catalogue=found.catalogue())
    return dataset if where is None else _with_domains(dataset, domain, found.seen, table, where)


def beside(dataset: Dataset, columns: dict[str, pa.ChunkedArray], item: np.ndarray, items: pa.Array) -> Dataset:
    """Return the data set with texts beside the interactions, of an item's first row; `item` numbers `items` by row."""
    first = np.full(len(items), -1, np.int64)
    first[item[::-1]] = np.arange(len(item) - 1, -1, -1)
    columns_of = [column.take(pa.array(first)).combine_chunks() for column in columns.values()]
    block = pa.RecordBatch.from_arrays(columns_of, names=list(columns))
    found = _Found(dataset, dataset.name, list(columns))
    found.add(items.dictionary_encode(), block)
    return replace(dataset, catalogue=found.catalogue())


class _Found:
    """Add texts to the items of a data set, whatever holds them."""

    def __init__(self, dataset: Dataset, table: str, columns: Sequence[str]):
        self.table = table
        self.listed, self.columns, self.title_column = dataset.catalogue, list(columns), names.title(columns)
        self.ids = pa.array(dataset.catalogue.ids.tolist(), pa.string())
        self.seen = np.zeros(len(dataset.catalogue), bool)
        self.titles, self.texts = [""] * len(self.seen), [""] * len(self.seen)

    def add(self, keys: pa.DictionaryArray, block: pa.RecordBatch) -> tuple[pa.Array, np.ndarray]:
        """Add the texts of a block; return which of its rows are the first of an item of ours, and these items."""
        found = pc.index_in(keys.dictionary.cast(pa.string()), value_set=self.ids)
        place = found.fill_null(-1).to_numpy(zero_copy_only=False)
        item = place[keys.indices.to_numpy()]
        rows = np.flatnonzero((item >= 0) & ~self.seen[item])
        rows = np.sort(rows[np.unique(item[rows], return_index=True)[1]])
        known = pa.array(rows)
        words = {
            name: map(words_of, _short(self.table, name, block.column(name).take(known)).to_pylist())
            for name in self.columns
        }
        said = zip(*words.values(), strict=True) if words else iter([()] * len(rows))
        for number, row in zip(item[rows].tolist(), said, strict=True):
            self.texts[number] = ". ".join(part for part in row if part)
            if self.title_column is not None:
                self.titles[number] = row[self.columns.index(self.title_column)]
        self.seen[item[rows]] = True
        return known, item[rows]

    def catalogue(self) -> Catalogue:
        place = {name: number for number, name in reversed(list(enumerate(self.listed.ids.tolist())))}
        same = [place[name] for name in self.listed.ids.tolist()]
        titles, texts = ([column[number] for number in same] for column in (self.titles, self.texts))
        return replace(self.listed, title=titles, text=texts)


def words_of(value: Any) -> str:
    """Return a value of a column of texts as one line of plain text.

    >>> words_of(["Action|Comedy", None, "1995"]), words_of(None)
    ('Action, Comedy, 1995', '')
    """
    if isinstance(value, list | tuple):
        return ", ".join(word for word in map(words_of, value[:100]) if word)[:_LONGEST]
    if value is None or isinstance(value, dict | bytes):
        return ""
    text = str(value)[: 4 * _LONGEST].replace("|", ", ")
    return plain(" ".join(text.split()))[:_LONGEST]


def _short(table: str, name: str, values: pa.Array) -> pa.Array:
    """Return texts cut to a bounded length, since a dictionary's long text may be taken by all items."""
    if pa.types.is_dictionary(values.type):
        return pa.DictionaryArray.from_arrays(
            values.indices, _short(table, name, values.dictionary)
        ).dictionary_decode()
    if is_text(values):
        with faults(f"{table}: column {printable(name, 40)}"):
            values.validate(full=True)  # not all readers look at the encoding
        return pc.utf8_slice_codeunits(values, 0, 4 * _LONGEST)
    return values


def _with_domains(
    dataset: Dataset,
    found: Iterable[tuple[np.ndarray, pa.DictionaryArray]],
    seen: np.ndarray,
    table: OpenTable,
    where: str,
) -> Dataset:
    """Return the data set with its items' domains, if the table of items names them for all."""
    if not seen.all():
        missing = dataset.catalogue.ids[int((~seen).argmax())]
        raise InputError(
            f"{table.name}: item '{missing}' has no row, and column {where} says the items' domains; add it, or set "
            "data_options.columns.domain=-"
        )
    items = np.concatenate([numbers for numbers, _ in found])
    column = pa.chunked_array([chunk for _, chunk in found]).unify_dictionaries()
    names_of = column.chunk(0).dictionary.cast(pa.string())
    codes, domains = by_appearance(np.concatenate([c.indices.to_numpy() for c in column.chunks]), names_of)
    if len(domains) > 255:
        raise InputError(f"{table.name}: column {where} has {len(domains):,} domains, and 255 is the most")
    of = np.zeros(len(dataset.catalogue), np.uint8)
    of[items] = codes
    return replace(dataset, catalogue=replace(dataset.catalogue, domain=of), domains=tuple(domains.to_pylist()))
