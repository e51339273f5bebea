"""Smaller devices get smaller encoders: students of a run's encoder, distilled from it on the catalogue's texts alone.

A student of L layers and width H gives vectors of the run's own space: after distillation its pooled vectors are mapped
to the encoder's by least squares over the catalogue, and that map is part of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cloud.distill import distill
from cloud.distillation import DistillSettings
from cloud.encode import encode
from cloud.model_folder import open_config
from cloud.settings import EncodeSettings
from edgefr.experiment.sections import StudentSection
from privacy.files import cache_dir, write_atomic
from privacy.progress import Progress

Vectors = npt.NDArray[np.float32]
RIDGE = 1e-3  # of the mean square of the student's vectors: keeps the map small where there are few texts


def students_of(
    encoder: Path,
    texts: Sequence[str],
    wanted: Sequence[StudentSection],
    how: EncodeSettings,
    seed: int,
    out: Path,
    progress: Progress | None = None,
) -> dict[str, Path]:
    """Distil every student that is `wanted`; transformers folders in `out` by name ("1x84": layers x width).

    Each holds `projection.safetensors` beside its weights. A student is kept by its settings, so asking again is quick.
    Raises `InputError` for a student that cannot be made of this encoder.
    """
    from safetensors.numpy import save

    made: dict[str, Path] = {}
    whole = encode(encoder, texts, how, cache_dir=cache_dir())
    for student in wanted:
        student_of = DistillSettings(
            teacher=str(encoder),
            layers=student.layers,
            hidden=student.hidden,
            steps=student.steps,
            warmup=min(50, student.steps // 4),
            layer_map=spread(student.layers, int(open_config(encoder).num_hidden_layers)),
            max_tokens=how.max_tokens,
            seed=seed,
        )
        kept = distill(texts, student_of, cache_dir(), progress=progress)
        weight, bias = least_squares(encode(kept.path, texts, how, cache_dir=cache_dir()), whole)
        folder = out / f"{student.layers}x{student.hidden}"
        shutil.copytree(kept.path, folder, dirs_exist_ok=True)
        write_atomic(folder / "projection.safetensors", save({"weight": weight, "bias": bias}))
        made[folder.name] = folder
    return made


def spread(layers: int, teacher: int) -> list[int]:
    """Return the encoder's layer that each of a student's layers follows.

    >>> spread(2, 4), spread(1, 2), spread(3, 4)
    ([2, 4], [2], [1, 2, 4])
    """
    return [max(1, z * teacher // layers) for z in range(1, layers + 1)]


def least_squares(given: Vectors, wanted: Vectors) -> tuple[Vectors, Vectors]:
    """Return the map `given` [n, h] @ weight [h, w] + bias [w] that is nearest to `wanted` [n, w], with a little ridge.

    Rows of zeros in `wanted` (texts that are empty) are left out.

    >>> x = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], np.float32)
    >>> weight, bias = least_squares(x, 2 * x + 1)
    >>> bool(np.abs(x @ weight + bias - (2 * x + 1)).max() < 0.01)
    True
    """
    rows = wanted.any(axis=1)
    x, y = given[rows].astype(np.float64), wanted[rows].astype(np.float64)
    at, level = x.mean(axis=0), y.mean(axis=0)
    x, y = x - at, y - level
    square = x.T @ x + RIDGE * len(x) * float(np.mean(x**2)) * np.eye(x.shape[1])
    weight = np.linalg.solve(square, x.T @ y)
    return weight.astype(np.float32), (level - at @ weight).astype(np.float32)
