"""A table whose rows say their block and part is taken as it is."""

import pickle
import re
import runpy
from pathlib import Path

import pytest

from edgefr.data.datasets import load
from edgefr.data.splits.blocks import Blocks
from edgefr.experiment.experiment import load_experiment
from edgefr.simulation.prepare import prepare
from privacy.errors import InputError

SCRIPT = Path("experiments/f3crec/blocks_as_csv.py")
ROWS = [
    (0, "train", "ann", "x"),
    (0, "train", "ann", "y"),
    (0, "valid", "ann", "z"),
    (0, "test", "ann", "v"),
    (0, "train", "bob", "x"),
    (1, "train", "cid", "w"),
    (1, "train", "ann", "w"),
    (1, "test", "ann", "x"),
    (1, "valid", "ann", "u"),
]


def table(folder: Path, rows: list[tuple[object, ...]], name: str = "blocks.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(["block,split,user,item", *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_blocks_and_parts_are_those_of_the_rows(tmp_path: Path) -> None:
    dataset = load(str(table(tmp_path, ROWS)))
    settings = Blocks(increments=1)
    users, items = dataset.users.tolist(), dataset.catalogue.ids.tolist()
    blocks = settings.apply(settings.restrict(dataset), seed=5)
    found = [
        (block.number, which, users[u], items[i])
        for block in blocks
        for which, part in (("train", block.train), ("valid", block.valid), ("test", block.test))
        for u in range(len(users))
        for i in part[u]
    ]
    assert sorted(found) == sorted(ROWS)
    assert [sorted(items[i] for i in block.pool) for block in blocks] == [list("vxyz"), list("uvwxyz")]
    assert [[users[u] for u in block.known.nonzero()[0]] for block in blocks] == [[], ["ann", "bob"]]
    assert sorted(items[i] for i in blocks[1].past[users.index("ann")]) == list("vxyz")
    assert [block.interactions for block in blocks] == [5, 4]
    assert "comes with" in settings.describe(settings.restrict(dataset))


def test_no_seed_and_no_fidelity_changes_them(tmp_path: Path) -> None:
    name = str(table(tmp_path, ROWS))
    made = [
        prepare(load_experiment(overrides=["method=f3crec", "protocol.increments=1", *more], data=name), None, "cpu")
        for more in ([], ["seed=3"], ["fidelity=released"])
    ]
    parts = [[(b.train.values.tolist(), b.test.values.tolist()) for b in each.blocks] for each in made]
    assert parts[0] == parts[1] == parts[2]


@pytest.mark.parametrize(
    ("rows", "settings", "problem"),
    [
        (ROWS, {}, "comes with 2 blocks; set protocol.increments=1"),
        (ROWS, {"increments": 1, "base": 0.5}, "protocol.base says how data are cut"),
        (ROWS, {"increments": 1, "min_interactions": 2}, "protocol.min_interactions says"),
        (ROWS, {"increments": 1, "increment_split": "random"}, "protocol.increment_split says"),
        ([*ROWS, (3, "train", "dan", "x")], {"increments": 1}, "without a gap, not [0, 1, 3]"),
        ([*ROWS, (1, "valid", "cid", "w")], {"increments": 1}, "user 'cid' has item 'w' twice in block 1"),
        ([*ROWS, (1, "test", "bob", "w")], {"increments": 1}, "user 'bob' has nothing to train on in block 1"),
    ],
)
def test_rows_that_no_run_can_go_through(tmp_path: Path, rows, settings, problem: str) -> None:
    dataset = load(str(table(tmp_path, rows)))
    with pytest.raises(InputError, match=re.escape(problem)):
        Blocks(**settings).restrict(dataset)


@pytest.mark.parametrize("bad", ["-1", "0.5", "D1", "1001"])
def test_what_is_no_block(tmp_path: Path, bad: str) -> None:
    with pytest.raises(InputError, match=r"row 4, column block: .*a block is a whole number"):
        load(str(table(tmp_path, [*ROWS[:2], (bad, "train", "ann", "q")])))


def test_a_block_needs_parts_and_can_be_left_alone(tmp_path: Path) -> None:
    path = str(table(tmp_path, ROWS))
    alone = load(path, options={"columns": {"split": "-"}})
    with pytest.raises(InputError, match="not which part"):
        Blocks(increments=1).restrict(alone)
    assert load(path, options={"columns": {"block": "-"}}).block is None


def test_published_files_are_written_as_such_a_table(tmp_path: Path) -> None:
    script = runpy.run_path(str(SCRIPT))
    names = {"train": "train_dict", "valid": "valid_dict", "test": "test_dict"}
    numbers = {name: at for at, name in enumerate(sorted({n for row in ROWS for n in row[2:]}))}
    for block in (0, 1):
        parts: dict[str, object] = {key: {} for key in names.values()}
        for number, part, user, item in ROWS:
            if number == block:
                parts[names[part]].setdefault(numbers[user], []).append(300 + numbers[item])  # type: ignore[attr-defined]
        parts["item_list"] = [70_000]
        (tmp_path / f"TASK_{block}.pickle").write_bytes(pickle.dumps(parts, protocol=4))
    out = tmp_path / "out.csv"
    script["main"](tmp_path, out)
    order = {"train": 0, "valid": 1, "test": 2}
    expected = {(str(b), part, str(numbers[u]), str(300 + numbers[i])) for b, part, u, i in ROWS}
    lines = [tuple(line.split(",")) for line in out.read_text().split()]
    assert lines[0] == ("block", "split", "user", "item")
    assert set(lines[1:]) == expected
    assert len(lines) == len(ROWS) + 1
    assert [(row[0], order[row[1]]) for row in lines[1:]] == sorted((row[0], order[row[1]]) for row in lines[1:])


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self):
            return (print, ("it ran",))

    path = tmp_path / "TASK_0.pickle"
    path.write_bytes(pickle.dumps({"train_dict": Runs()}, protocol=4))
    with pytest.raises(ValueError, match="instruction STACK_GLOBAL is not of plain data"):
        runpy.run_path(str(SCRIPT))["understood"](path)
