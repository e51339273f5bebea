"""What holds for every test: property tests have no deadline, and tests can be taken by shares, slow ones alone or all.

A deadline says more about what else runs than about the code. `pytest -m "" --slow-share 2/5` runs the second fifth of
the slow tests beside all quick ones, `pytest --share 2/3` the second third of all that would run; its name alone says
which share a test is of, so five such calls, or three, run all of them. Of a test with many cases those are quick whose
id or value its mark names, `@pytest.mark.turns("fedmf", "fcucr")`; the others take turns with what is slow.
"""

from __future__ import annotations

import re
import zlib

import pytest
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the options."""
    parser.addoption("--slow-share", metavar="K/N", default="1/1", help="of the slow tests, run the Kth of N shares")
    parser.addoption("--share", metavar="K/N", default="1/1", help="of all tests, run the Kth of N shares")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what takes turns as slow, and leave out tests of other shares."""
    for item in items:
        turns = item.get_closest_marker("turns")
        if turns is not None and not cases_of(item) & set(turns.args):
            item.add_marker(pytest.mark.slow)
    slow, every = asked(config, "--slow-share"), asked(config, "--share")
    others = {
        item
        for item in items
        for one, all_ in ((slow, every) if item.get_closest_marker("slow") else (every,))
        if share_of(shared_by(item), all_) != one
    }
    if others:
        config.hook.pytest_deselected(items=[item for item in items if item in others])
        items[:] = [item for item in items if item not in others]


def cases_of(item: pytest.Item) -> set[str]:
    """Return what names a case of a test: its id, and each value in it."""
    return {item.callspec.id, *map(str, item.callspec.params.values())}  # type: ignore[attr-defined]


def shared_by(item: pytest.Item) -> str:
    """Return what a test's share follows from: its name, or the variant of a method that it asks something of.

    So all tests of one variant are of one share, and whatever the first of them makes the others find.
    """
    params = getattr(getattr(item, "callspec", None), "params", {})
    return str(params["variant"]) if item.get_closest_marker("turns") and "variant" in params else item.nodeid


def asked(config: pytest.Config, option: str) -> tuple[int, int]:
    """Return which of how many shares an option asks for."""
    share = config.getoption(option)
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", share)
    if found is None or int(found[1]) > int(found[2]):
        raise pytest.UsageError(f"{option} is K/N with K from 1 to N, such as 2/3; got {share}")
    return int(found[1]), int(found[2])


def share_of(name: str, shares: int) -> int:
    """Return which of so many shares a test belongs to, from 1."""
    return zlib.crc32(name.encode()) % shares + 1
