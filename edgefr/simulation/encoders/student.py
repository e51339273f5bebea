"""The student is a small BERT, distilled from a large one on the catalogue's texts; or the large one itself.

Smaller devices get smaller students, distilled from the run's encoder on the same texts. One of L layers and width H
gives vectors of the run's own space: its pooled vectors are mapped to the encoder's by least squares over the
catalogue, and that map is part of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgefr.data.prepared_data import Text
from edgefr.simulation.encoders.encoder import RunEncoder
from privacy.progress import Progress

if TYPE_CHECKING:
    from cloud.settings import EncodeSettings
    from edgefr.data.prepared_data import Prepared
    from edgefr.experiment.experiment import Experiment
    from edgefr.experiment.sections import StudentSection
    from edgefr.simulation.runs.folder import RunFolder
    from export.encoders import TextEncoders
    from export.model import TrainedModel


Vectors = npt.NDArray[np.float32]
RIDGE = 1e-3  # of the mean square of the student's vectors: keeps the map small where there are few texts


class Student(RunEncoder):
    """Its vectors are pooled states of a BERT (TransFR §3.2.2)."""

    name = "student"
    language_model = True

    def read(self, experiment: Experiment, prepared: Prepared, device: str, progress: Progress | None = None) -> Text:
        """Distil the student (or take the teacher) and encode every item's text once. Both are cached by content."""
        from cloud.distill import distill, untrained
        from cloud.encode import encode
        from cloud.model_folder import resolve
        from edgefr.engine.device import torch_device
        from privacy.files import cache_dir

        cache, settings, texts = cache_dir(), experiment.encoder, prepared.dataset.catalogue.text
        device = str(torch_device(device))
        if settings.distill is None:
            folder = resolve(settings.teacher)
            return Text(
                encode(folder, texts, settings.encode, device, cache, progress),
                None,
                folder,
                {"teacher": settings.teacher},
            )
        student = distill(texts, settings.distill, cache, device, progress)
        blank = untrained(settings.distill, cache)
        return Text(
            vectors=encode(student.path, texts, settings.encode, device, cache, progress),
            untrained=encode(blank.path, texts, settings.encode, device, cache, progress),
            folder=student.path,
            report={**student.report, "digest": student.digest, "cached": student.cached},
        )

    def shipped(self, run: RunFolder, model: TrainedModel, progress: Progress | None = None) -> TextEncoders:
        """Return the run's encoder, and its smaller students, which are distilled where any are asked for."""
        from cloud.pooling import POOLINGS
        from export.encoders import TextEncoders

        e, how, folder = run.experiment, run.experiment.encoder.encode, run.path / "encoder"
        students: dict[str, Path] = {}
        if e.export.students:
            wanted = e.export.students
            students = students_of(folder, model.names.read, wanted, how, e.seed, run.path / "students", progress)
        return TextEncoders(folder, POOLINGS[how.pooling], how.max_tokens, students, e.export.vocabulary)


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

    from cloud.distill import distill
    from cloud.distillation import DistillSettings
    from cloud.encode import encode
    from cloud.model_folder import open_config
    from privacy.files import cache_dir, write_atomic

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
