"""Texts become vectors: each text once, batched by length, kept by content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
import torch

from cloud.batches import by_length, checked, digest_of, padded, tokenise
from cloud.model_folder import digest, open_model, open_tokenizer, usable_device
from cloud.pooling import POOLINGS
from cloud.settings import EncodeSettings
from cloud.train import few_threads
from privacy.errors import InputError
from privacy.files import write_atomic
from privacy.progress import Progress

Vectors = npt.NDArray[np.float32]

BATCH = 64


@few_threads()
def encode(
    folder: Path,
    texts: Sequence[str],
    settings: EncodeSettings,
    device: str = "cpu",
    cache_dir: Path | None = None,
    progress: Progress | None = None,
) -> Vectors:
    """Return one vector per text from the BERT in `folder`: float32 [n, hidden]; an empty text has the zero vector.

    With `cache_dir`, vectors are kept under the digest of model, texts and settings. Raises `InputError` for
    a folder that is no usable model, a text that is no string, a damaged cache or an unusable device.
    """
    folder, texts = Path(folder), checked(texts)
    if cache_dir is None:
        return _encode(folder, texts, settings, device, progress)
    named = json.dumps([digest(folder), digest_of(texts), settings.model_dump()], sort_keys=True)
    path = Path(cache_dir) / f"vectors-{hashlib.sha256(named.encode()).hexdigest()[:24]}.safetensors"
    if path.exists():
        try:
            return safetensors.numpy.load_file(path)["vectors"]
        except (OSError, KeyError, safetensors.SafetensorError) as error:
            raise InputError(f"the kept vectors in {path} are damaged; delete the file and run again") from error
    vectors = _encode(folder, texts, settings, device, progress)
    write_atomic(path, safetensors.numpy.save({"vectors": vectors}))
    return vectors


def _encode(
    folder: Path, texts: list[str], settings: EncodeSettings, device: str, progress: Progress | None
) -> Vectors:
    model = open_model(folder, usable_device(device))
    limit = int(model.config.max_position_embeddings)  # type: ignore[union-attr, arg-type]
    if settings.max_tokens > limit:
        raise InputError(f"max_tokens {settings.max_tokens} is more than the {limit} positions of {folder}")
    return vectors_of(model, open_tokenizer(folder), texts, settings, progress)


def vectors_of(
    model: Any, tokenizer: Any, texts: list[str], settings: EncodeSettings, progress: Progress | None = None
) -> Vectors:
    """`encode` with a model and a tokenizer that are already open: float32 [n, hidden]."""
    filled = np.array([i for i, text in enumerate(texts) if text], dtype=np.int64)
    tokens = tokenise(tokenizer, [texts[i] for i in filled], settings.max_tokens)
    out = np.zeros((len(texts), model.config.hidden_size), dtype=np.float32)
    batches = by_length(tokens.lengths, BATCH)
    with torch.inference_mode():
        for number, rows in enumerate(batches):
            ids, mask = padded(tokens, rows, str(model.device))
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
            out[filled[rows]] = POOLINGS[settings.pooling].pool(states, mask).float().cpu().numpy()
            if progress is not None:
                progress("encode", number + 1, len(batches), f"{int(filled[rows].size)} texts")
    return out
