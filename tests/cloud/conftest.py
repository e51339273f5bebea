"""A tiny real teacher: a BERT with random weights and a WordPiece tokenizer trained on made-up item texts."""

import itertools
from pathlib import Path

import pytest
import torch

from cloud.distillation import DistillSettings
from cloud.model_folder import save
from cloud.pretrain import tokenizer_of
from cloud.student import new_student

WORDS = [
    "red",
    "blue",
    "green",
    "wool",
    "cotton",
    "silk",
    "yarn",
    "thread",
    "scarf",
    "hat",
    "glove",
    "paper",
    "pen",
]


def item_texts(count: int) -> list[str]:
    """Distinct texts of 2 to 9 words."""
    triples = itertools.permutations(WORDS, 3)
    return [" ".join((triple * 3)[: 2 + i % 8]) + f" {i}" for i, triple in zip(range(count), triples, strict=False)]


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return item_texts(60)


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    from transformers import BertConfig

    folder = tmp_path_factory.mktemp("teacher")
    tokenizer = tokenizer_of(texts, vocabulary=120, max_tokens=32)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        initializer_range=0.2,
    )
    save(folder, new_student(config, seed=7), tokenizer)
    return folder


@pytest.fixture
def settings(teacher: Path) -> DistillSettings:
    return DistillSettings(
        teacher=str(teacher),
        layers=1,
        hidden=24,
        layer_map=[3],
        steps=12,
        batch_size=8,
        warmup=2,
        max_tokens=16,
    )


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
