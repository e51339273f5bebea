"""Damaged files end in one line or in what they said: a share of `tests.edge.fuzz`."""

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from edge import open_bundle
from privacy.errors import InputError
from tests.contract import bundles
from tests.edge.folders import resign
from tests.edge.fuzz import World, fuzz, one, table


def test_broken_files_end_in_one_line_or_in_what_they_said() -> None:
    found = fuzz(0.04)
    print(table(found))
    assert not any(counts["faults"] or counts["hangs"] for counts in found.values())
    assert all(counts["refused"] > counts["rules"] for name, counts in found.items() if "signed" not in name)
    assert not any(found[name]["rules"] for name in ("zips", "states")), "what has a digest says what it said"


def test_a_damaged_archive_opens_as_packed_or_not_at_all(tmp_path: Path) -> None:
    zips = World(tmp_path).kinds()[0]
    found = Counter(one(zips, number) for number in range(1000, 1150))
    assert not found.keys() - {"refused", "same"}
    assert found["refused"] > 100


@pytest.mark.parametrize("name", ["\r", "\x85", "\u2028", "\x1b[2J"])
def test_a_refusal_names_a_key_as_no_terminal_obeys_it(tmp_path: Path, name: str) -> None:
    bundle = shutil.copytree(bundles.bundle("fedmf"), tmp_path / "bundle")
    resign(bundle, lambda record: record.update({name: 1}))
    with pytest.raises(InputError, match=re.escape(f"({ascii(name)[1:-1]}: Extra inputs are not permitted)")):
        open_bundle(bundle)
