"""The first weights of a student are projected from its teacher's.

The teacher's states are written in the f directions along which its token embeddings vary most; every matrix
of a mapped layer is written in those directions too, and cut to the student's smaller heads by truncated SVD.
The student then starts near the teacher and needs a fraction of the steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from privacy.errors import InputError

UNSEEN = 0.01  # weight of a token that no text uses, beside 1 for each use


def start_from_teacher(student: nn.Module, teacher: nn.Module, layers: list[int], counts: Tensor) -> Tensor:
    """Set the student's weights to the teacher's in low-rank form; returns TransFR Eq. 3's first W, [f, f'].

    By truncated SVD of the teacher's token table, T ~ (T V) V', where each token weighs as often as the texts
    use it (`counts`, [tokens]); W = V'. `layers` is p(z) for z = 0..; layer z starts from teacher layer p(z).
    Raises `InputError` when the student is wider than the teacher.
    """
    its = _tables(teacher)
    table = its["word_embeddings"]
    width, full = student.config.hidden_size, table.shape[1]  # type: ignore[union-attr]
    if width > full:  # type: ignore[operator]
        raise InputError(
            f"init 'teacher' cannot fill a student ({width}) wider than its teacher ({full}): use 'random'"
        )
    weight = counts.double().to(table.device) + UNSEEN
    directions = principal_directions(table, weight, width)  # type: ignore[arg-type]
    with torch.no_grad():
        for name, own in _tables(student).items():
            own.copy_(its[name] @ directions)
        every_token = torch.arange(len(table), device=table.device)[:, None]
        states = teacher.embeddings(input_ids=every_token)[:, 0] @ directions  # type: ignore[operator]
        spread = float((states.double().square().mean(1) @ weight / weight.sum()).sqrt())
        for name, parameter in student.named_parameters():
            if name.endswith("LayerNorm.weight"):
                parameter.fill_(spread)
        for own_layer, layer in zip(_layers(student), layers[1:], strict=True):
            source = _layers(teacher)[layer - 1]
            _start_attention(own_layer.attention, source.attention, directions)
            _start_feed_forward(own_layer, source, directions)
    return directions.T.contiguous()


def principal_directions(table: Tensor, counts: Tensor, width: int) -> Tensor:
    """Return the right singular vectors, largest first, of `table` with row i repeated `counts[i]` times: [f', width].

    `table` [tokens, f'], `counts` [tokens]. Each vector's largest number is positive.
    """
    rows = table.detach().double()
    values, vectors = torch.linalg.eigh(rows.T @ (rows * counts.double()[:, None]))
    top = vectors[:, values.argsort(descending=True)[:width]]
    sign = torch.sign(top.gather(0, top.abs().argmax(0, keepdim=True)))
    return (top * sign).float()


def low_rank(product: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return factors [..., m, rank] and [..., rank, n] whose product is nearest to `product` [..., m, n]."""
    left, values, right = torch.linalg.svd(product.double(), full_matrices=False)
    root = values[..., :rank].sqrt()
    return (left[..., :rank] * root[..., None, :]).float(), (root[..., None] * right[..., :rank, :]).float()


def _start_attention(own: Any, its: Any, directions: Tensor) -> None:
    """Per head, logits and output are products of two matrices: keep the nearest of lower rank."""
    heads = own.self.num_attention_heads
    large, small = its.self.attention_head_size, own.self.attention_head_size

    def per_head(linear: Any) -> Tensor:
        matrix = torch.cat([linear.weight @ directions, linear.bias[:, None]], dim=1)
        return matrix.reshape(heads, large, -1)

    logits = per_head(its.self.query).mT @ per_head(its.self.key) * (small / large) ** 0.5
    query, key = low_rank(logits, small)
    for linear, factor in ((own.self.query, query.mT), (own.self.key, key)):
        flat = factor.reshape(heads * small, -1)
        linear.weight.copy_(flat[:, :-1])
        linear.bias.copy_(flat[:, -1])
    outward = (directions.T @ its.output.dense.weight).reshape(-1, heads, large).transpose(0, 1)
    out, value = low_rank(outward @ per_head(its.self.value)[..., :-1], small)
    own.output.dense.weight.copy_(out.transpose(0, 1).reshape(-1, heads * small))
    own.self.value.weight.copy_(value.reshape(heads * small, -1))
    own.self.value.bias.zero_()
    constant = its.output.dense.weight @ its.self.value.bias + its.output.dense.bias
    own.output.dense.bias.copy_(constant @ directions)


def _start_feed_forward(own: Any, its: Any, directions: Tensor) -> None:
    """Keep the teacher's neurons that move the states most; a wider student's other ones stay random."""
    inward, outward = its.intermediate.dense.weight @ directions, directions.T @ its.output.dense.weight
    strength = inward.norm(dim=1) * outward.norm(dim=0)
    kept = strength.argsort(descending=True)[: len(own.intermediate.dense.weight)].sort().values
    own.intermediate.dense.weight[: len(kept)] = inward[kept]
    own.intermediate.dense.bias[: len(kept)] = its.intermediate.dense.bias[kept]
    own.output.dense.weight[:, : len(kept)] = outward[:, kept]
    own.output.dense.bias.copy_(its.output.dense.bias @ directions)


def _layers(model: Any) -> list[Any]:
    return list(model.encoder.layer)


def _tables(model: nn.Module) -> dict[str, Tensor]:
    tables = {name.split(".")[-2]: table for name, table in model.named_parameters() if "embeddings.weight" in name}
    return {name: tables[name] for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")}
