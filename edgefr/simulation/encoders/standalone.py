"""A text encoder on its own, outside a run: which one is distilled, of which texts, and where it goes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from privacy.errors import InputError

if TYPE_CHECKING:
    from cloud.distillation import DistillSettings
    from edgefr.experiment.experiment import Experiment


def settings_of(experiment: Experiment) -> DistillSettings:
    """Return how an experiment distils its encoder. Raises `InputError` where it distils none."""
    from edgefr.experiment.text_encoder import ENCODERS

    if not ENCODERS[experiment.encoder.kind].language_model:
        raise InputError(f"encoder.kind={experiment.encoder.kind} distils nothing; set encoder.kind=student")
    if experiment.encoder.distill is None:
        raise InputError("this experiment reads with the teacher itself (encoder.distill is empty); set its fields")
    return experiment.encoder.distill


def copy_folder(source: Path, out: Path) -> None:
    """Copy a folder so that the copy is there whole or not at all. Raises `InputError` when it cannot be written."""
    part = out.with_name(f".{out.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(source, part)
        part.rename(out)
    except OSError as error:
        reason = error.strerror or (error.args[0][0][2] if isinstance(error, shutil.Error) else error)
        raise InputError(f"cannot write {out}: {reason}; nothing was changed") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file. Raises `InputError` if it cannot be read as UTF-8."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check the path") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; save the file as plain UTF-8 text") from None
    if not any(line.strip() for line in lines):
        raise InputError(f"{path} holds no text; expected one text per line")
    return lines
