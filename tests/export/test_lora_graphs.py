"""Graphs of a client that reads for itself: the encoder's weights are in them, batches of any size go through them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from edgefr.engine import optimisers
from edgefr.methods.transfr.lora import LoRATransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.step import Step
from export.steps import first_values, step_graph
from export.trace import open_session
from tests.methods import berts

ITEMS = 60
MATHS = {"sgd": optimisers.sgd, "adam": optimisers.adam}


@cache
def program() -> LoRATransFR:
    """One layer: tracing takes as long as there are nodes."""
    settings = TransFRSettings(client="lora", adapter=[8], head=[6, 8], lora_rank=2)
    return LoRATransFR(settings, berts.reader(ITEMS, layers=1), berts.numbers("text", (ITEMS, berts.WIDTH)), 1)


@cache
def federated() -> tuple[Any, float]:
    return step_graph(program(), program().phases[0], MATHS)


def test_a_step_trains_like_torch_for_every_batch_size() -> None:
    graph, error = federated()
    assert error < 1e-5
    wanted = {i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in graph.graph.input}
    assert wanted["items.tokens"][1] == berts.TOKENS
    assert isinstance(wanted["items.tokens"][0], str), "the number of examples is free"
    assert {"theta", "lr", "label", "weight", "theta.first", "theta.second"} <= set(wanted)
    held = {tensor.name for tensor in graph.graph.initializer}
    assert set(program().constants) <= held
    assert not set(program().constants) & set(wanted)


def test_the_rehearsal_moves_every_matrix() -> None:
    """B is away from zero where it starts, or A would have no gradient; and what is checked does move."""
    step = Step(program(), program().phases[0], MATHS)
    start = first_values(step)
    parts = step.split(start["theta"])
    assert all(float(parts[name].abs().max()) > 0.01 for name in program().lora)
    graph, _ = federated()
    session = open_session(graph)
    items = torch.arange(40)
    feeds = {name: value.numpy() for name, value in start.items()}
    feeds |= {"items.tokens": start["items.tokens"][items].numpy(), "label": (items % 2).float().numpy()}
    feeds |= {"weight": np.full(40, 1 / 40, np.float32), "factor": np.ones(1, np.float32)}
    feeds |= {"epsilon": np.full(1, 1e-8, np.float32)}
    names = {i.name for i in session.get_inputs()}
    (after,) = session.run(["theta.next"], {n: v for n, v in feeds.items() if n in names})
    moved = step.split(torch.from_numpy(after) - start["theta"])
    rate = float(start["lr"].min())  # about the length of Adam's first step, whatever the gradient
    assert rate > 0
    assert all(float(moved[name].abs().max()) > rate / 2 for name in program().lora)
