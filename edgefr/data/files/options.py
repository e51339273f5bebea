"""These are the options of data that people bring: which columns mean what, and which rows become interactions."""

from __future__ import annotations

import codecs
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""What a second is in each unit of time."""

LEFT = "-"
"""This stands in place of a column's name: leave the column alone."""


class Columns(BaseModel):
    """These are names of columns; one that is not given is found by its usual names, and "-" leaves it alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    user: str | None = Field(None, description="who had an item")
    item: str | None = Field(None, description="which item it was")
    rating: str | None = Field(None, description="how much it was liked (or how often it was used): a number")
    time: str | None = Field(None, description="when that was: a number or a date")
    clock: str | None = Field(None, description="the time of day, where the time is a day")
    session: str | None = Field(None, description="the session that a row belongs to")
    split: str | None = Field(None, description="train, valid or test: a split of one's own")
    block: str | None = Field(None, description="the block of time that a row is of, from 0 on: blocks of one's own")
    domain: str | None = Field(None, description="the part of the catalogue that an item is of")
    listed: str | None = Field(None, description="the items' ids in the file of items")


class FileOptions(BaseModel):
    """These options say how a file is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    columns: Columns = Field(default_factory=Columns, description="names of columns, where they are not the usual ones")
    items: str | None = Field(
        None, description="a file with a row for each item and its texts; from the current folder, or beside the data"
    )
    texts: list[str] | None = Field(
        None,
        min_length=1,
        max_length=16,
        description="text columns, most telling first: of the file of items, or of the interactions if there is none",
    )
    positive: float | None = Field(
        None, allow_inf_nan=False, description="ratings from this on are interactions, others are left out; none: all"
    )
    time: str = Field(
        "auto",
        description="unit of time: s, ms, us, ns, a pattern as %d/%m/%Y, order (an order without a clock), none (the "
        "file's own order) or auto",
    )
    ties: Literal["auto", "first", "last"] = Field(
        "auto",
        description="which of a user's rows of equal times is newest by where it stands in the file; auto: the last "
        "where the file goes forward in time, else the first (leave-one-out)",
    )
    repeats: Literal["once", "keep", "first", "last"] = Field(
        "once",
        description="rows of one user and item: once at a time, keep all, or only the first or last of them in time",
    )
    user_most: int | None = Field(
        None, ge=1, description="users with more interactions than this, such as programs, are left out (count)"
    )
    user_core: int = Field(1, ge=1, description="interactions a user needs, repeatedly applied (count)")
    item_core: int = Field(1, ge=1, description="interactions an item needs, repeatedly applied (count)")
    separator: str | None = Field(
        None, min_length=1, max_length=8, description="what stands between columns of text; by default it is found"
    )
    quote: bool | None = Field(
        None, description="whether text between double quotes is one field; none: yes, of tabs as the file proves"
    )
    encoding: str | None = Field(None, description="how text is written: latin-1, utf-16, ...; none: UTF-8")
    decimal: Literal[".", ","] = Field(".", description="what stands before the fraction of a number in text")
    missing: Literal["refuse", "drop", "keep"] = Field(
        "refuse",
        description="rows whose user or item is empty, NA, NaN, NULL, None or \\N: refused, left out, or kept as ids",
    )
    errors: Literal["refuse", "drop"] = Field(
        "refuse", description="rows that cannot be read: the first one is refused, or all are left out and counted"
    )
    header: list[str] | None = Field(
        None, min_length=2, max_length=1000, description="names of the columns, for a file of text without a header"
    )

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                "".encode(codecs.lookup(value).name)
        except (LookupError, UnicodeError):
            raise ValueError("it is no encoding of text; latin-1, cp1252 and utf-16 are some") from None
        return value

    @field_validator("time")
    @classmethod
    def _known_time(cls, value: str) -> str:
        known = ("auto", *UNITS, "order", "none")
        if value not in known and not re.search(r"%[A-Za-z]", value):
            raise ValueError(f"it is one of {', '.join(known)}, or a pattern as %d/%m/%Y")
        return value
