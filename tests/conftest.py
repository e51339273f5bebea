"""What holds for every test: property tests have no deadline, and slow tests can be taken by shares.

A deadline says more about what else runs than about the code. `pytest -m "" --slow-share 2/3` runs the second third of
the slow tests beside all quick ones; a test's share follows from its name alone, so three such calls run all of them.
"""

from __future__ import annotations

import re
import zlib

import pytest
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the option."""
    parser.addoption("--slow-share", metavar="K/N", default="1/1", help="of the slow tests, run the Kth of N shares")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests of other shares."""
    share = config.getoption("--slow-share")
    asked = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", share)
    if asked is None or int(asked[1]) > int(asked[2]):
        raise pytest.UsageError(f"--slow-share is K/N with K from 1 to N, such as 2/3; got {share}")
    one, all_ = int(asked[1]), int(asked[2])
    others = [item for item in items if item.get_closest_marker("slow") and share_of(item.nodeid, all_) != one]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]


def share_of(name: str, shares: int) -> int:
    """Return which of so many shares a test belongs to, from 1."""
    return zlib.crc32(name.encode()) % shares + 1
