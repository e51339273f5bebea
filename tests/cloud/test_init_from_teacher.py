import numpy as np
import pytest
import torch
from transformers import BertConfig

from cloud.init_from_teacher import low_rank, principal_directions, start_from_teacher
from cloud.student import new_student

SHAPE = {"vocab_size": 50, "num_attention_heads": 2, "num_hidden_layers": 2, "attn_implementation": "eager"}


def test_directions_are_the_weighted_singular_vectors() -> None:
    table = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 6)))
    counts = torch.arange(40) % 4
    repeated = table.repeat_interleave(counts, dim=0)
    expected = torch.linalg.svd(repeated)[2][:3].T
    found = principal_directions(table, counts, 3).double()
    torch.testing.assert_close((found * expected).sum(0).abs(), torch.ones(3, dtype=torch.float64), atol=1e-6, rtol=0)
    assert (found.gather(0, found.abs().argmax(0, keepdim=True)) > 0).all()


def test_low_rank_is_the_nearest_product() -> None:
    matrices = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 6, 5)))
    left, right = low_rank(matrices, 2)
    lost = (left @ right - matrices).square().sum((1, 2))
    expected = torch.linalg.svdvals(matrices)[:, 2:].square().sum(1)
    torch.testing.assert_close(lost, expected, rtol=1e-5, atol=1e-6)
    assert left.shape == (3, 6, 2)


@pytest.mark.parametrize("layer", [1, 2])
def test_a_mapped_layer_does_what_the_teachers_does(layer: int) -> None:
    """At the teacher's width, attention and both sub-layers give the teacher's numbers, turned by W."""
    config = BertConfig(**SHAPE, hidden_size=8, intermediate_size=12, initializer_range=0.3)
    teacher, student = new_student(config, 0).eval(), new_student(config, 1).eval()
    for parameter in teacher.parameters():
        if parameter.dim() == 1:
            parameter.data += torch.linspace(-0.2, 0.2, len(parameter))
    w = start_from_teacher(student, teacher, [0, layer, layer], torch.ones(50))
    own, its = student.encoder.layer[1], teacher.encoder.layer[layer - 1]
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(1, 5, 8))).float()
    turned = x @ w.T

    def attended(attention: torch.nn.Module, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        context, weights = attention.self(states)[:2]
        return weights, attention.output.dense(context)

    weights, out = attended(its.attention, x)
    own_weights, own_out = attended(own.attention, turned)
    torch.testing.assert_close(own_weights, weights, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(own_out @ w, out, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        own.output.dense(own.intermediate(turned)) @ w,
        its.output.dense(its.intermediate(x)),
        atol=1e-5,
        rtol=1e-4,
    )
