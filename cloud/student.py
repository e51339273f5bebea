"""The student: its shape, checked against the teacher's, and its first weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cloud.settings import DistillSettings
from privacy import keyed
from privacy.errors import InputError


@contextmanager
def drawn_from(seed: int, purpose: str, *path: int) -> Iterator[None]:
    """torch's random numbers come from a key inside, and go on outside as if nothing had happened."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(keyed.key(seed, purpose, *path) >> 1)
        yield


def layer_map(settings: DistillSettings, teacher_layers: int) -> list[int]:
    """Teacher layer p(z) of each student layer z = 0..layers, p(0) = 0 the embedding layer (TransFR Eq. 1).

    Raises `InputError` with a map that fits when this one does not.
    """
    count = settings.layers
    spread = [max(1, z * teacher_layers // count) for z in range(1, count + 1)]
    chosen = settings.layer_map if settings.layer_map is not None else [3 * z for z in range(1, count + 1)]
    if count > teacher_layers:
        raise InputError(f"a student of {count} layers needs a teacher of as many; this one has {teacher_layers}")
    fits = f"for {count} layers from {teacher_layers} use layer_map: {spread}"
    if len(chosen) != count:
        raise InputError(f"layer_map names {len(chosen)} layers for a student of {count}; {fits}")
    if any(not 1 <= layer <= teacher_layers for layer in chosen):
        source = "layer_map" if settings.layer_map is not None else "the default map p(z) = 3z"
        raise InputError(f"{source} {chosen} asks for layers that the teacher has not (1 to {teacher_layers}); {fits}")
    return [0, *chosen]


def student_config(settings: DistillSettings, teacher: Any) -> Any:
    """The student's BertConfig. Raises `InputError` when heads, width or length do not fit the teacher's."""
    from transformers import BertConfig

    heads = settings.heads if settings.heads is not None else teacher.num_attention_heads
    if heads != teacher.num_attention_heads:
        raise InputError(
            f"heads is {heads} but the teacher has {teacher.num_attention_heads}: attention is compared head by head "
            f"(TransFR Eq. 2); set heads to {teacher.num_attention_heads} or leave it empty"
        )
    if settings.hidden % heads:
        near = max(heads, round(settings.hidden / heads) * heads)
        raise InputError(f"hidden {settings.hidden} is not a multiple of the {heads} heads; try hidden: {near}")
    if settings.max_tokens > teacher.max_position_embeddings:
        raise InputError(
            f"max_tokens {settings.max_tokens} is more than the teacher's {teacher.max_position_embeddings} positions"
        )
    return BertConfig(
        vocab_size=teacher.vocab_size,
        hidden_size=settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=heads,
        intermediate_size=settings.intermediate or round(settings.hidden * 1200 / 312),  # TransFR §3.2.2: 14.5M
        max_position_embeddings=teacher.max_position_embeddings,
        type_vocab_size=teacher.type_vocab_size,
        hidden_act=teacher.hidden_act,
        layer_norm_eps=teacher.layer_norm_eps,
        pad_token_id=teacher.pad_token_id,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )


def new_student(config: Any, seed: int) -> nn.Module:
    """A BERT with random weights that depend on the seed alone."""
    from transformers import BertModel

    with drawn_from(seed, "student"):
        return BertModel(config)


def principal_directions(teacher: nn.Module, width: int) -> Tensor:
    """Right singular vectors of the teacher's embedding table with the largest singular values: [f', width]."""
    table = teacher.embeddings.word_embeddings.weight.double()  # type: ignore[union-attr, operator]
    values, vectors = torch.linalg.eigh(table.T @ table)
    top = vectors[:, values.argsort(descending=True)[:width]]
    sign = torch.sign(top.gather(0, top.abs().argmax(0, keepdim=True)))
    return (top * sign).float()


def start_from_teacher(student: nn.Module, teacher: nn.Module) -> Tensor:
    """Set the student's embedding tables to the teacher's in their best low-rank form; returns W, [f, f'].

    By truncated SVD of the teacher's token table, T ~ (T V) V'; the student's tables are the teacher's times V, and
    W = V'. Raises `InputError` when the student is wider than the teacher.
    """
    mine, theirs = student.embeddings, teacher.embeddings
    width, full = mine.word_embeddings.weight.shape[1], theirs.word_embeddings.weight.shape[1]  # type: ignore
    if width > full:
        raise InputError(f"init 'teacher' cannot fill a student wider ({width}) than its teacher ({full}); use 'random'")
    directions = principal_directions(teacher, width)
    with torch.no_grad():
        for table in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
            getattr(mine, table).weight.copy_(getattr(theirs, table).weight.float() @ directions)
    return directions.T.contiguous()
