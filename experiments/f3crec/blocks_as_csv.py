"""Write the block files that were published with F3CRec as one table that edgefr reads: `block,split,user,item`.

    python experiments/f3crec/blocks_as_csv.py FOLDER blocks.csv
    edgefr simulate --data blocks.csv --set method=f3crec --set fidelity=released

FOLDER holds TASK_0.pickle, TASK_1.pickle, ... A pickle is a program, and unpickling runs it: nothing is unpickled here.
The files are listed by `pickletools` and understood as far as they hold dictionaries, lists, whole numbers and names,
the fifteen instructions below and no others. edgefr itself reads no pickle.
"""

from __future__ import annotations

import csv
import pickletools
import sys
from pathlib import Path
from typing import Any

PARTS = {"train_dict": "train", "valid_dict": "valid", "test_dict": "test"}
_MARK = object()
_PLAIN = {"PROTO", "FRAME", "MEMOIZE", "STOP"}
_VALUES = {"BININT", "BININT1", "BININT2", "SHORT_BINUNICODE"}


def understood(path: Path) -> Any:
    """Return what a file holds. Raises `ValueError` for any instruction that is not one of plain data."""
    stack: list[Any] = []

    def marked() -> list[Any]:
        at = max(place for place, value in enumerate(stack) if value is _MARK)
        taken = stack[at + 1 :]
        del stack[at:]
        return taken

    for code, value, _ in pickletools.genops(path.read_bytes()):
        if code.name in _VALUES:
            stack.append(value)
        elif code.name in ("EMPTY_DICT", "EMPTY_LIST", "MARK"):
            stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list}.get(code.name, lambda: _MARK)())
        elif code.name in ("APPEND", "APPENDS"):
            new = marked() if code.name == "APPENDS" else [stack.pop()]
            stack[-1].extend(new)
        elif code.name in ("SETITEM", "SETITEMS"):
            new = marked() if code.name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            stack[-1].update(zip(new[::2], new[1::2], strict=True))
        elif code.name not in _PLAIN:
            raise ValueError(f"{path}: instruction {code.name} is not of plain data; this is no published block")
    return stack.pop()


def main(folder: Path, out: Path) -> None:
    """Write a row for every interaction, in the order in which the files have them."""
    with out.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["block", "split", "user", "item"])
        for number in range(len(list(folder.glob("TASK_*.pickle")))):
            block = understood(folder / f"TASK_{number}.pickle")
            for key, part in PARTS.items():
                table.writerows((number, part, user, item) for user, items in block[key].items() for item in items)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
