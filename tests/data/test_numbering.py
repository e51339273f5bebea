"""Users and items are numbered by their ids: nobody's rows move what is shipped."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgefr.data.datasets import load
from edgefr.data.interactions import id_order
from edgefr.experiment.experiment import load_experiment
from edgefr.simulation.prepare import prepare
from edgefr.simulation.program import build_program

IDS = st.lists(st.text("ab019-", min_size=1, max_size=22), max_size=30)


@given(IDS | st.lists(st.integers(0, 10**19).map(str), max_size=30))
def test_ids_are_in_natural_order(ids: list[str]) -> None:
    """The literal rule: text before the last digits, then how much they are, then the whole text."""

    def key(one: str) -> tuple[str, int, str]:
        before = one.rstrip("0123456789")
        return before, int(one[len(before) :] or -1), one

    found = np.array(ids, np.str_)[id_order(np.array(ids, np.str_))].tolist()
    assert found == sorted(ids, key=lambda one: (key(one)[0], max(key(one)[1], 0), one))


def test_an_id_of_two_domains_stands_by_the_name_of_its_domain(tmp_path: Path) -> None:
    rows = ["a,7,films", "a,7,books", "b,7,books", "b,8,films"]
    for number, order in enumerate((rows, rows[::-1])):
        path = tmp_path / f"{number}.csv"
        path.write_text("\n".join(["user,item,domain", *order]) + "\n")
        found = load(str(path))
        named = [found.domains[domain] for domain in found.catalogue.domain]
        assert list(zip(found.catalogue.ids.tolist(), named, strict=True)) == [
            ("7", "books"),
            ("7", "films"),
            ("8", "films"),
        ]


ROWS = [(f"u{u}", f"i{(7 * u + 3 * k) % 40}", 1_600_000_000 + 1000 * k + u) for u in range(24) for k in range(6)]
CHANGES = {
    "other order": lambda rows: rows[::-1],
    "one person less": lambda rows: [row for row in rows if row[0] != "u0"],
    "one person more": lambda rows: [("new", f"i{39 - k}", 1_600_000_000 + k) for k in range(5)] + rows,
    "somebody's rows are others": lambda rows: [(u, f"i{(int(i[1:]) + 20 * (u == 'u3')) % 40}", t) for u, i, t in rows],
}


def written(path: Path, rows: list[tuple[str, str, int]]) -> Path:
    """Write a file of interactions."""
    path.write_text("user,item,time\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
    return path


@pytest.mark.parametrize("change", CHANGES)
def test_whoever_has_what_the_catalogue_stays(change: str, tmp_path: Path) -> None:
    before = load(str(written(tmp_path / "before.csv", ROWS)))
    after = load(str(written(tmp_path / "after.csv", CHANGES[change](ROWS))))
    assert after.catalogue.ids.tolist() == before.catalogue.ids.tolist() == [f"i{n}" for n in range(40)]
    for user, mine in ((u, {i for v, i, _ in CHANGES[change](ROWS) if u == v}) for u in after.users):
        number = int(np.flatnonzero(after.users == user)[0])
        rows = slice(after.offsets[number], after.offsets[number + 1])
        assert {str(after.catalogue.ids[item]) for item in after.item[rows]} == mine
        assert (np.diff(after.time[rows]) >= 0).all()
    if change == "other order":
        for column in ("users", "user", "item", "time", "offsets"):
            assert getattr(after, column).tolist() == getattr(before, column).tolist()


@pytest.mark.parametrize(
    ("change", "protocol"), [*((change, "leave-one-out") for change in CHANGES), ("other order", "blocks")]
)
def test_a_program_begins_with_the_same_bytes(change: str, protocol: str, tmp_path: Path) -> None:
    """Every tensor that all devices start from; blocks number items by the block that they are new in."""
    tensors = []
    for name, rows in (("before", ROWS), ("after", CHANGES[change](ROWS))):
        path = written(tmp_path / f"{name}.csv", rows)
        values = [f"data={path}", "method=fedmf", f"protocol.name={protocol}"]
        values += (
            ["protocol.min_interactions=1", "protocol.base=0.5", "protocol.increments=1"]
            if protocol == "blocks"
            else ["protocol.negatives=5"]
        )
        chosen = load_experiment(overrides=values)
        prepared = prepare(chosen, None, "cpu")
        first = build_program(chosen, prepared).init_shared(chosen.seed)
        tensors.append((prepared.dataset.catalogue.ids.tolist(), first))
    (ids, one), (other_ids, other) = tensors
    assert ids == other_ids
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
