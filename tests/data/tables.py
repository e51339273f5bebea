"""Small hand-made data sets and archives for tests."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from edgefr.data.interactions import Catalogue, Dataset, assemble


def dataset(
    rows: list[tuple[int, int, int]],
    users: int,
    items: int,
    domain: list[int] | None = None,
    domains: tuple[str, ...] = ("all",),
    clock: bool = True,
) -> Dataset:
    """A data set from (user, item, time) rows in file order; every item is in the first domain by default."""
    ids = np.array([f"i{i}" for i in range(items)])
    names = [f"item {i}" for i in range(items)]
    catalogue = Catalogue(ids, names, names, np.array(domain or [0] * items, np.uint8))
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    people = np.array([f"u{u}" for u in range(users)])
    return assemble("hand-made", people, catalogue, tuple(columns), domains, clock, {})


def archive(folder: Path, stem: str, files: Mapping[str, str | bytes], zipped: bool = True) -> None:
    """Write an archive of this name, as a zip or as an unpacked folder."""
    if zipped:
        with zipfile.ZipFile(folder / f"{stem}.zip", "w", zipfile.ZIP_DEFLATED) as out:
            for name, content in files.items():
                out.writestr(f"{stem}/{name}", content)
    else:
        (folder / stem).mkdir()
        for name, content in files.items():
            (folder / stem / name).write_bytes(content.encode() if isinstance(content, str) else content)
