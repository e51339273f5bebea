"""A share of the broken files of `tests.edge.fuzz`, all of which `python -m tests.edge.fuzz` runs."""

from tests.edge.fuzz import fuzz, table


def test_broken_files_end_in_one_line_or_in_what_they_said() -> None:
    found = fuzz(0.04)
    print(table(found))
    assert not any(counts["faults"] or counts["hangs"] for counts in found.values())
    assert all(counts["refused"] > counts["rules"] for name, counts in found.items() if "signed" not in name)
    assert not any(found[name]["rules"] for name in ("zips", "states")), "what has a digest says what it said"
