"""Changes of a table by many clients are compared and mixed row by row: of a row only those meet who changed it."""

from __future__ import annotations

from typing import Any

from cloud.compiled import compiled
from cloud.compiled.lanes import dot


def _add_products(base: Any, ends: Any, slots: Any, values: Any, along: Any, out: Any) -> None:
    """Add to `out` [clients, clients] the inner products of the clients' changes, each pair's in one of its two places.

    Changes `values` [n, width] are of clients `slots` [n]; row r's end before `ends[r]`. `along` [clients] gets their
    products with the rows `base` [rows, width] that were changed.
    """
    first, width = 0, values.shape[1]
    for row, last in enumerate(ends):
        for i in range(first, last):
            along[slots[i]] += dot(base, row, values[i], width)
            with_client, change = out[slots[i]], values[i]
            for j in range(first, i + 1):
                with_client[slots[j]] += dot(values, j, change, width)
        first = last


def _pick(table: Any, rows: Any, columns: Any, out: Any) -> None:
    """Put the values of `table` in every one of `rows` and `columns` into `out` [rows, columns]."""
    for i in range(len(rows)):
        row, place = table[rows[i]], out[i]
        for j in range(len(columns)):
            place[j] = row[columns[j]]


add_products: Any = compiled(_add_products)
pick: Any = compiled(_pick)
