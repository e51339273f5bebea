"""Tests have caches of their own, but for graphs and compiled code: what a test made, another need not make again."""

from __future__ import annotations

from pathlib import Path

from privacy.files import cache_dir

SHARED = ("graphs", "checked", "compiled")


def new_cache(folder: Path) -> Path:
    """Make a cache in a folder, where encoders and vectors are made anew; what is `SHARED` is that of all tests."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SHARED:
        common = cache_dir() / name
        common.mkdir(parents=True, exist_ok=True)
        if not (folder / name).exists():
            (folder / name).symlink_to(common.resolve(), target_is_directory=True)
    return folder
