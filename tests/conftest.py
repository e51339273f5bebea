"""What holds for every test: no deadlines of property tests, and a folder's tests stay together in one worker."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)  # which says more about what else runs than of the code
settings.load_profile("no deadline")

LONGEST = ["remote", "cli", "contract", "edge", "durable", "golden", "engine", "export", "gpu", "audit", "report"]
"""Folders whose tests take longest, the longest first: workers begin with them, so that all end at about one time."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests by folder for `--dist loadgroup`: what a folder's tests share is made once, not once a worker."""
    for item in items:
        if item.config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group(_folder(item)))
    items.sort(key=lambda item: LONGEST.index(_folder(item)) if _folder(item) in LONGEST else len(LONGEST))


def _folder(item: pytest.Item) -> str:
    """Return the folder in `tests` of a test; of one that lies in none, its file."""
    _, *within = item.nodeid.partition("::")[0].split("/")
    return within[0] if within else item.nodeid
