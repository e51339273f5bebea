"""Bundles carry text encoders whose vocabulary, length and weights are cut to what a device needs, held to torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import safetensors
import torch
from torch import Tensor

from edge.encoder import TextEncoder, open_encoder
from edge.manifest import Encoder, Words
from edge.word_vectors import WordEncoder
from export import artifact_cache as kept
from export.prune import Ints, cap, lengths, prune
from export.quantise import cosine
from export.staged_files import TOKENIZER, Staging
from export.torch_encoder import TorchEncoder, encoder_graph, load_encoder
from export.trace import TOLERANCE, open_session, refused
from export.variants import GraphCost
from export.weights import WEIGHTS, Weights, beside, stored_as
from privacy.errors import InputError

SAMPLE = 32  # texts that encoders are compared on
SHORTEST = 16  # positions that are always kept: graphs are compared on a few lengths
LEAST_COSINE = 0.9  # mean cosine to torch, below which smaller weights are no longer the same encoder
PROJECTION = "projection.safetensors"  # beside a student's weights: `weight` [hidden, width], `bias` [width]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class StagedEncoder:
    """A form is a staged encoder with one type of weights: its config entry, its mean cosine to the run's own encoder.

    `work`: one text of full length. `unfit`: why it must not be used, None for a sound one.
    """

    record: Encoder | Words
    parameters: int
    cosine: float | None
    work: GraphCost
    unfit: str | None

    @property
    def said(self) -> dict[str, Any]:
        """Return it as JSON can say it."""
        return asdict(self) | {"record": self.record.model_dump(mode="json")}

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> StagedEncoder:
        """Return the form of an encoder with a graph that was said so."""
        return cls(**{**said, "record": Encoder.model_validate(said["record"]), "work": GraphCost(**said["work"])})


class Reads(Protocol):
    """This is what bundles carry to read new texts: forms of it can be staged, of which a device class gets one."""

    def forms(self, stage: Staging, texts: Sequence[str]) -> dict[str, StagedEncoder]:
        """Stage every form and return them by label; `texts` are what was read of each item."""
        ...


class Pooling(Protocol):
    """A pooling makes vectors [..., f] of states [..., L, f] and a mask [..., L]; bundles record its name."""

    @property
    def name(self) -> str: ...

    @property
    def pool(self) -> Callable[[Tensor, Tensor], Tensor]: ...


@dataclass(frozen=True)
class TextEncoders:
    """This is the encoder whose vectors items have, and how it reads texts.

    `folder` is a transformers folder; `students` are smaller encoders by name, in folders like it, that give vectors of
    the same space. Texts are cut to `max_tokens`; devices keep `vocabulary` pieces (None: all).
    """

    folder: Path
    pooling: Pooling
    max_tokens: int
    students: Mapping[str, Path] = field(default_factory=dict)
    vocabulary: int | None = None

    @property
    def folders(self) -> dict[str, Path]:
        """Return all folders by name: "" is the run's own encoder."""
        return {"": Path(self.folder), **self.students}

    def forms(self, stage: Staging, texts: Sequence[str]) -> dict[str, StagedEncoder]:
        """Stage every encoder with every type of weights, by label; those that were staged before are read."""
        folders = [(name, kept.digests(folder)) for name, folder in self.folders.items()]
        made_of = (folders, self.pooling, self.max_tokens, self.vocabulary, list(texts))
        make = lambda: {n: form.said for n, form in stage_encoders(stage, self, texts).items()}  # noqa: E731
        found = kept.staged_once(stage, made_of, make)
        return {label: StagedEncoder.of(said) for label, said in found.items()}


def stage_encoders(stage: Staging, how: TextEncoders, texts: Sequence[str]) -> dict[str, StagedEncoder]:
    """Stage every encoder with every type of weights, by label ("i8", or "2x84-i8"), and the tokenizer they share.

    Raises `InputError` for a folder without tokenizer.json, for `how` that the encoder cannot take, for students of
    another width or vocabulary, and for graphs that differ from torch.
    """
    own = Path(how.folder)
    if not (own / TOKENIZER).is_file():
        raise InputError(f"{own} has no {TOKENIZER}, which a device needs; save its tokenizer as a fast one")
    encoders = {name: load_encoder(folder, how.pooling.pool) for name, folder in how.folders.items()}
    longest = encoders[""].longest
    if not 3 <= how.max_tokens <= longest:
        raise InputError(f"max_tokens must be from 3 to {longest}, what {own} can read; got {how.max_tokens}")
    pruned, kept = prune((own / TOKENIZER).read_bytes(), texts, how.vocabulary or 1 << 31)
    limit = cap(lengths(pruned, texts), how.max_tokens)
    stage.add(TOKENIZER, "tokenizer", pruned)
    filled = [text for text in texts if text.strip()]
    sample = filled[:: max(1, len(filled) // SAMPLE)][:SAMPLE]
    modules = {name: _projected(encoders[name], folder) for name, folder in how.folders.items()}
    expected = {name: torch_vectors(module, own, sample, limit) for name, module in modules.items()}
    width, out = expected[""].shape[1], dict[str, StagedEncoder]()
    for name, folder in how.folders.items():
        if expected[name].shape[1] != width:
            widths = f"vectors of {expected[name].shape[1]} values instead of {width}"
            raise InputError(f"{folder} gives {widths}; distil the student again")
        shrink(encoders[name], kept, limit, folder)
    for name, folder in how.folders.items():
        encoder, module = encoders[name], modules[name]
        graph = encoder_graph(folder, module, encoder.words, max(limit, SHORTEST))
        count = sum(p.numel() for p in module.parameters())
        for weights in WEIGHTS:
            label = "-".join(filter(None, (name, weights)))
            record = _record(encoder, label, weights, width, how.pooling, limit)
            record = _stage(stage, record, graph, f"{weights} encoder graph of {folder}")
            got = encoder_of(stage, record).encode(sample)
            unfit = _compare(folder, weights, got, expected[name])
            close = float(cosine(got, expected[""]).mean()) if sample else None
            out[label] = StagedEncoder(record, count, close, _work(encoder, weights, limit), unfit)
    return out


def encoder_of(stage: Staging, record: Encoder | Words) -> TextEncoder | WordEncoder:
    """A staged encoder, loaded as a device loads it."""
    return open_encoder(record, lambda path: stage.root / path)


def torch_vectors(module: torch.nn.Module, folder: Path, texts: Sequence[str], max_tokens: int) -> Floats:
    """Return vectors of the texts through transformers' tokenizer in `folder` and torch, [n, width]."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    with torch.no_grad():
        tokens = [tokenizer(t, truncation=True, max_length=max_tokens, return_tensors="pt") for t in (*texts, "a")]
        rows = [module(t["input_ids"], t["attention_mask"]).numpy() for t in tokens]
    vectors: Floats = np.concatenate(rows)[:-1]
    return vectors


def shrink(encoder: TorchEncoder, kept: Ints, longest: int, folder: Path) -> None:
    """Cut the embeddings to the pieces `kept`, and a BERT's positions to `longest`, in place."""
    if kept.max(initial=-1) >= encoder.words:
        raise InputError(f"{folder} knows {encoder.words} pieces, the tokenizer has more; give what belongs together")
    words = encoder.model.get_input_embeddings()
    words.weight = torch.nn.Parameter(words.weight.detach()[torch.from_numpy(kept)].contiguous())
    embeddings = getattr(encoder.model, "embeddings", None)
    positions = getattr(embeddings, "position_embeddings", None)
    if encoder.model.config.model_type == "bert" and positions is not None:
        count = min(max(longest, SHORTEST), encoder.longest)
        positions.weight = torch.nn.Parameter(positions.weight.detach()[:count].contiguous())
        for name in ("position_ids", "token_type_ids"):
            if hasattr(embeddings, name):
                setattr(embeddings, name, getattr(embeddings, name)[:, :count].contiguous())
        encoder.longest = count
    encoder.words = len(kept)


class Projected(torch.nn.Module):
    """This is an encoder of another width, mapped to the width of the item vectors."""

    def __init__(self, encoder: TorchEncoder, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.weight, self.bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return torch.matmul(self.encoder(ids, mask), self.weight) + self.bias


def _projected(encoder: TorchEncoder, folder: Path) -> torch.nn.Module:
    from safetensors.torch import load_file

    if not (folder / PROJECTION).is_file():
        return encoder
    try:
        tensors = load_file(folder / PROJECTION)
        return Projected(encoder, tensors["weight"].float(), tensors["bias"].float())
    except (OSError, KeyError, safetensors.SafetensorError) as error:
        raise InputError(f"{folder / PROJECTION} is damaged; distil the student again") from error


def _record(encoder: TorchEncoder, label: str, weights: Weights, width: int, pooling: Pooling, limit: int) -> Encoder:
    config = encoder.model.config
    return Encoder(
        path=f"onnx/encoder.{label}.onnx",
        data=None,
        tokenizer=TOKENIZER,
        dtype=weights,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        vocabulary=encoder.words,
        width=width,
        pooling=pooling.name,
        max_tokens=limit,
    )


def _stage(stage: Staging, record: Encoder, graph: Any, what: str) -> Encoder:
    made, data = stored_as(record.dtype, graph, stage.root), f"{record.path}.data"
    with refused(what):
        open_session(made)
    small, large = beside(made, Path(data).name)
    stage.add(record.path, "encoder", small)
    if not large:
        return record
    stage.add(data, "encoder", large)
    return record.model_copy(update={"data": data})


def _compare(folder: Path, weights: Weights, got: Floats, expected: Floats) -> str | None:
    """Say why this form cannot be used; `InputError` when even single precision is not what torch gives."""
    if weights == "f32" and np.abs(got - expected).max(initial=0) > TOLERANCE:
        raise InputError(f"{folder}: its {TOKENIZER} and its tokenizer disagree; save the tokenizer again")
    close = float(cosine(got, expected).mean()) if len(got) else 1.0
    if np.isfinite(close) and close >= LEAST_COSINE:
        return None
    return f"mean cosine {close:.3f} to torch"


def _work(encoder: TorchEncoder, weights: Weights, tokens: int) -> GraphCost:
    """Count the operations (multiply-adds count two) and the matrices' bytes of one text of `tokens` tokens."""
    config = encoder.model.config
    hidden, wide = config.hidden_size, config.intermediate_size
    matrices = 4 * hidden**2 + 2 * hidden * wide
    flops = config.num_hidden_layers * (2 * tokens * matrices + 4 * tokens**2 * hidden)
    size = {"f32": 4.0, "f16": 2.0, "i8": 1.0, "i4": 0.625}[weights]
    return GraphCost(float(flops), config.num_hidden_layers * matrices * size, integer=weights == "i8")
