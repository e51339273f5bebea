"""A second small text encoder, so that a run can be asked with another one than `tests.export.worlds.student`."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from safetensors.torch import load_file, save_file

from tests.export.worlds import folder, student

OTHER = "OTHER"
"""Stands for its folder, in values of the sweep."""


@cache
def other_student() -> Path:
    """Return the folder of `student` with its weights halved."""
    path = shutil.copytree(student(), folder("other") / "student")
    (weights,) = path.glob("*.safetensors")
    save_file({name: 0.5 * value for name, value in load_file(weights).items()}, weights, {"format": "pt"})
    return path
