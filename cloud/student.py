"""The student has a shape, checked against the teacher's, and random first weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from cloud import random_streams as purposes
from cloud.distillation import DistillSettings
from cloud.train import seeded
from privacy.errors import InputError


def layer_map(settings: DistillSettings, teacher_layers: int) -> list[int]:
    """Return the teacher layer p(z) of each student layer z = 0..layers, p(0) = 0 the embedding layer (TransFR Eq. 1).

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
    """Return the student's BertConfig. Raises `InputError` when heads, width or length do not fit the teacher's."""
    from transformers import BertConfig

    heads = settings.heads if settings.heads is not None else teacher.num_attention_heads
    if heads != teacher.num_attention_heads:
        raise InputError(
            f"heads is {heads} but the teacher has {teacher.num_attention_heads}: attention is compared head "
            f"by head (TransFR Eq. 2); set heads to {teacher.num_attention_heads} or leave it empty"
        )
    if settings.hidden % heads:
        near = max(heads, round(settings.hidden / heads) * heads)
        raise InputError(f"hidden {settings.hidden} is not a multiple of the {heads} heads; try hidden: {near}")
    if settings.max_tokens > teacher.max_position_embeddings:
        raise InputError(
            f"max_tokens {settings.max_tokens} is more than the teacher's {teacher.max_position_embeddings} positions"
        )
    config = BertConfig(
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
    )
    config._attn_implementation = "eager"  # the only one that returns attention matrices
    return config


def new_student(config: Any, seed: int) -> nn.Module:
    """Make a BERT with random weights that depend on the seed alone."""
    from transformers import BertModel

    with seeded(seed, purposes.STUDENT):
        return BertModel(config)
