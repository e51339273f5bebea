"""Tests have caches of their own, but for ONNX graphs: what a test made, another need not make again."""

from __future__ import annotations

from pathlib import Path

from privacy.files import cache_dir


def new_cache(folder: Path) -> Path:
    """Make a cache in a folder, where encoders and vectors are made anew; graphs are those of all tests."""
    graphs = cache_dir() / "graphs"
    graphs.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "graphs").exists():
        (folder / "graphs").symlink_to(graphs.resolve(), target_is_directory=True)
    return folder
