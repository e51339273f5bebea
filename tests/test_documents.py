"""YAML from outside: what is read, what is refused, and where a fault is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from edgefr.config.documents import MAX_BYTES, MAX_DEPTH, Document
from privacy.errors import InputError


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = Field(1, ge=1)
    names: list[str] = Field(default_factory=list)


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner = Field(default_factory=Inner)
    table: dict[str, Inner] = Field(default_factory=dict)
    rate: float = 0.5


def read(tmp_path: Path, content: str | bytes) -> Document:
    file = tmp_path / "file.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return Document.read(file)


scalars = st.none() | st.booleans() | st.integers(-1000, 1000) | st.text("abc xyz:#-", max_size=8)
trees = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=4),
    st.recursive(
        scalars,
        lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text("gh", min_size=1, max_size=3), c, max_size=3),
        max_leaves=12,
    ),
    min_size=1,
    max_size=4,
)


@given(trees)
@limits(max_examples=60, deadline=None)
def test_plain_data_is_read_back(tmp_path_factory: pytest.TempPathFactory, values: dict) -> None:
    folder = tmp_path_factory.mktemp("yaml")
    assert read(folder, yaml.safe_dump(values)).values == values


@given(st.binary(max_size=200))
@limits(max_examples=150, deadline=None)
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    message = str(folder)
    try:
        assert isinstance(read(folder, content).values, dict)
    except InputError as error:
        message = str(error)
    assert str(folder) in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("- 1\n", ":1: the file must be a mapping"),
        ("a: 1\n\tb: 2\n", ":2:"),
        ("a: &x 1\nb: *x\n", ":2: aliases"),
        ("a: 1\nb: 2\na: 3\n", ":3: 'a' is given twice"),
        ("a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), ":1: nested too deeply"),
        ("a: !!python/name:os.system\n", ":1:"),
        ("b: 1\na: 0x" + "f" * 200_000, ":2: a number has more than 40 characters"),
        ("a: 0b" + "1" * 200_000, ":1: a number has more than 40 characters"),
        ("a: " + "9" * 5000, ":1: a number has more than 40 characters"),
        *(
            (f"a: !!{tag}\n", ":1: tags")
            for tag in ("int 9", "bool x", "timestamp x", 'float ""', "set [1]", "binary é")
        ),
        ("a: ! 1\n", ":1: tags (!name) are not read"),
        ("a: 1:2:3", ":1: 1:2:3 is a number to base 60; quote it, or write it out"),
        ("a: 1:30.5", ":1: 1:30.5 is a number to base 60"),
        ("a: 1" + ":59" * 60_000, ":1: a number has more than 40 characters"),
        ("a: 2020-13-45", "cannot be read as YAML"),
        ("a: 1\n---\nb: 2\n", ":2:"),
        (b"a: \xff\n", "byte 3 is not UTF-8"),
        (b"a: \x00\n", "control characters"),
        (b"#" * (MAX_BYTES + 1), "larger than 1 MB"),
    ],
)
def test_what_is_not_plain_data_is_refused(tmp_path: Path, content: str | bytes, part: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, content)
    assert f"{tmp_path / 'file.yaml'}" in str(caught.value)
    assert part in str(caught.value)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(InputError, match=r"cannot read .*check the path"):
            Document.read(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("inner:\n  size: 0\n", ":2: inner.size: it should be greater than or equal to 1; got 0"),
        ("inner:\n  szie: 3\n", ":2: inner.szie: unknown key 'szie'; did you mean 'size'? (known: names, size)"),
        ("rate: 1\ntable:\n  a: {}\n  b:\n    size: x\n", ":5: table.b.size: it should be a valid integer"),
        ("inner:\n  names: [a, 3]\n", ":2: inner.names.1: it should be a valid string; got 3"),
        ("inner: 3\n", ":1: inner: it should be a mapping; got 3"),
        ("rate: fast\ninner: {size: 0}\n", " (and 1 more)"),
    ],
)
def test_a_fault_has_its_line_and_field(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, content).validate(Outer)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_value_that_was_put_is_blamed_on_its_option(tmp_path: Path) -> None:
    document = read(tmp_path, "inner:\n  size: 2\nrate: 3\n")
    document.put("inner.size", 0, "--set inner.size=0")
    with pytest.raises(InputError, match=r"^--set inner.size=0: inner.size: it should be greater"):
        document.validate(Outer)
    document.put("inner.size", 4, "--set inner.size=4")
    document.put("table.new.size", 5, "--set table.new.size=5")
    made = document.validate(Outer)
    assert (made.inner.size, made.table["new"].size, made.rate) == (4, 5, 3.0)
    with pytest.raises(InputError, match=r"--set rate.x=1: 'rate' is a value, not a section"):
        document.put("rate.x", 1, "--set rate.x=1")


def test_a_missing_key_is_blamed_on_what_stands_beside_it() -> None:
    class Needy(BaseModel):
        a: int
        b: int

    class Holder(BaseModel):
        needy: Needy

    document = Document({}, "experiment")
    document.put("needy.a", 1, "--set needy.a=1")
    with pytest.raises(InputError, match=r"^--set needy.a=1: needy.b: is missing; add it$"):
        document.validate(Holder)
