"""Workers of pytest take a folder's tests whole; pytest 9.2 with pytest-xdist 3.8 drops groups without a word."""

from __future__ import annotations

import pytest


def test_a_worker_knows_the_groups_of_its_tests(request: pytest.FixtureRequest) -> None:
    if not hasattr(request.config, "workerinput"):
        pytest.skip("no workers: groups are for `pytest -n 4 --dist loadgroup`")
    if not request.config.getvalue("loadgroup"):
        pytest.skip("workers take tests one by one here, as asked")
    assert request.node.nodeid.endswith("@test_groups.py"), "pytest-xdist does not group tests with this pytest"
