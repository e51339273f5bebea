"""Step graphs: what goes in and comes out, the numbers of one step by hand, and a gate that finds what is wrong."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.optimiser import corrections
from edgefr.engine.optimisers import adam, sgd
from export.step import Step
from export.steps import STEPS, check_step, free_sizes, step_graph
from export.trace import IR, OPSET, open_session
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.contract.programs import program

OPTIMISERS = {"sgd": sgd, "adam": adam}


@cache
def made(variant: str, phase: int = 0) -> tuple[Any, Step]:
    local = program(variant)
    graph, error = step_graph(local, local.phases[phase], OPTIMISERS)
    assert error < 1e-5
    assert STEPS >= 50
    return graph, Step(local, local.phases[phase], OPTIMISERS)


def test_a_step_takes_and_gives_tensors_by_name() -> None:
    graph, _ = made("fedmf")
    assert [i.name for i in graph.graph.input] == ["theta", "lr", "items.item", "lr.item", "label", "weight"]
    assert [o.name for o in graph.graph.output] == ["loss", "theta.next", "items.item.next"]
    assert (graph.opset_import[0].version, graph.ir_version) == (OPSET, IR)
    two_phases = [made("pfedrec", phase)[0] for phase in (0, 1)]
    assert [[o.name for o in g.graph.output] for g in two_phases] == [
        ["loss", "theta.next"],
        ["loss", "items.item.next"],
    ]
    mean, _ = made("transfr mean")
    assert {"history.text", "label.history", "theta.first", "theta.second"} <= {i.name for i in mean.graph.input}


@pytest.mark.parametrize("rows", [1, 3, 50])
def test_one_step_of_fedmf_by_hand(rows: int) -> None:
    """loss = sum w BCE(<p, q>, y); dp = sum w (s - y) q; dq = w (s - y) p."""
    rng = np.random.default_rng(rows)
    user, items = rng.standard_normal(8), rng.standard_normal((rows, 8))
    label, weight = rng.uniform(size=rows), rng.uniform(size=rows) / rows
    score = 1 / (1 + np.exp(-items @ user))
    error = weight * (score - label)
    feeds = {"theta": user, "lr": np.full(8, 0.3), "items.item": items, "lr.item": np.array([2.0])}
    feeds |= {"label": label, "weight": weight}
    feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
    loss, user_next, items_next = open_session(made("fedmf")[0]).run(None, feeds)
    expected = -(weight * (label * np.log(score) + (1 - label) * np.log(1 - score))).sum()
    assert_same(loss, np.array([expected]))
    assert_same(user_next, user - 0.3 * error @ items)
    assert_same(items_next, items - 2.0 * error[:, None] * user)


def test_adams_epsilon_is_not_optimised_away() -> None:
    """A gradient of zero everywhere moves nothing; without epsilon it is 0 / 0."""
    session = open_session(made("transfr vector")[0])
    factor, epsilon = (np.array([value], np.float32) for value in corrections(1))
    feeds: dict[str, np.ndarray] = {}
    for i in session.get_inputs():
        feeds[i.name] = np.zeros([3 if isinstance(size, str) else size for size in i.shape], np.float32)
    feeds |= {"factor": factor, "epsilon": epsilon, "lr": np.ones_like(feeds["lr"])}
    out = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    np.testing.assert_array_equal(out["theta.next"], feeds["theta"])


def spoilt(graph: Any, kind: str, replacement: str) -> Any:
    """A copy of the graph with its last node of one kind replaced by another of the same inputs."""
    copy = type(graph)()
    copy.CopyFrom(graph)
    [node for node in copy.graph.node if node.op_type == kind][-1].op_type = replacement
    return copy


@pytest.mark.parametrize(("kind", "replacement"), [("Div", "Mul"), ("Add", "Sub"), ("Mul", "Add")])
def test_the_gate_finds_a_wrong_graph_and_names_tensor_and_step(kind: str, replacement: str) -> None:
    graph, step = made("transfr vector")
    with pytest.raises(
        InputError, match=r"the graph differs from torch by .* in '.*' at step \d+: it cannot be shipped"
    ):
        check_step("the graph", spoilt(graph, kind, replacement), step)


def test_the_gate_refuses_what_no_runtime_loads() -> None:
    graph, step = made("fedmf")
    with pytest.raises(InputError, match="is not a valid ONNX graph"):
        check_step("the graph", spoilt(graph, "Sub", "NoSuchOperator"), step)


def test_a_table_that_is_trained_through_a_history_is_refused() -> None:
    with_past = program("fedmf")
    with_past.needs_history = True
    with pytest.raises(InputError, match="trains table 'item' through a history"):
        step_graph(with_past, with_past.phases[0], OPTIMISERS)


@given(st.lists(st.integers(1, 70), max_size=40))
def test_traced_sizes_are_no_tensors_size(sizes: list[int]) -> None:
    free = free_sizes({"x": ("n", *sizes)})
    found = {free.examples, free.past, free.pairs}
    assert len(found) == 3
    assert not found & set(sizes)
