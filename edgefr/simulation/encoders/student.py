"""The student is a small BERT, distilled from a large one on the catalogue's texts; or the large one itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgefr.data.prepared_data import Text
from edgefr.simulation.encoders.encoder import RunEncoder
from privacy.progress import Progress

if TYPE_CHECKING:
    from edgefr.data.prepared_data import Prepared
    from edgefr.experiment.experiment import Experiment
    from edgefr.simulation.runs.folder import RunFolder
    from export.encoders import TextEncoders
    from export.model import TrainedModel


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
        from edgefr.simulation.encoders.smaller import students_of
        from export.encoders import TextEncoders

        e, how, folder = run.experiment, run.experiment.encoder.encode, run.path / "encoder"
        students: dict[str, Path] = {}
        if e.export.students:
            wanted = e.export.students
            students = students_of(folder, model.names.read, wanted, how, e.seed, run.path / "students", progress)
        return TextEncoders(folder, POOLINGS[how.pooling], how.max_tokens, students, e.export.vocabulary)
