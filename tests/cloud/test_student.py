import pytest

from cloud.distillation import DistillSettings
from cloud.student import layer_map, new_student, student_config


def test_the_papers_student_has_14_5_million_parameters() -> None:
    from transformers import BertConfig

    config = student_config(DistillSettings(), BertConfig(vocab_size=30522))
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (4, 312, 12)
    assert config.intermediate_size == 1200
    parameters = sum(p.numel() for p in new_student(config, 0).parameters())
    assert parameters == pytest.approx(14.5e6, rel=0.02)


def test_layer_maps() -> None:
    assert layer_map(DistillSettings(), 12) == [0, 3, 6, 9, 12]
    assert layer_map(DistillSettings(layers=2), 6) == [0, 3, 6]
    assert layer_map(DistillSettings(layers=2, layer_map=[5, 2]), 6) == [0, 5, 2]
