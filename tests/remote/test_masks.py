"""No other user of a machine writes into a device's state or a run's lineage, whatever the umask is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.identity import Identity
from edge.rollback import note
from edge.state import Store
from edgefr.simulation.runs.lineage import FOLDER, ROUNDS, Begun, Journal
from privacy.files import write_atomic

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes of files")


@pytest.fixture(autouse=True)
def nothing_masked() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_devices_state_is_its_owners_alone(tmp_path: Path) -> None:
    with Store(tmp_path / "locked").locked():
        pass
    note(tmp_path / "noted", serial=1)
    Identity.made(tmp_path / "enrolled")
    write_atomic(tmp_path / "written" / "policy.yaml", b"", mode=0o600)
    for folder in ("locked", "noted", "enrolled", "written"):
        places = [tmp_path / folder, *(tmp_path / folder).iterdir()]
        assert [place for place in places if place.stat().st_mode & 0o077] == []


def test_a_lineage_is_written_by_its_owner_alone(tmp_path: Path) -> None:
    with Journal.locked(tmp_path) as journal:
        journal.append(Begun(run="0" * 64, model="0" * 64, ledger=None, round=0, clients=3, terms=None))
    places = [tmp_path / FOLDER, tmp_path / FOLDER / ROUNDS, *(tmp_path / "private").iterdir(), tmp_path / "private"]
    assert [place for place in places if place.stat().st_mode & 0o022] == []
