"""Devices in Node, a tab and devices in Python sum their uploads under masks, and end where the simulator does."""

from __future__ import annotations

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefr
from edgefr.engine.model import part
from edgefr.serving.keys import Keys
from edgefr.serving.serve import by_http, origins_of
from edgefr.serving.server import Access
from tests.edge_js import sum_vectors
from tests.edge_js.conftest import CHROMIUM
from tests.edge_js.test_federation import described, in_python, in_tabs, site
from tests.remote import worlds
from tests.remote.test_sealed import SEALED, Heard
from tests.remote.worlds import CLASS, ROUNDS, time_up

pytestmark = pytest.mark.xdist_group("edge_js_people")
TABS, NODES = (0 if CHROMIUM is None else 1), 3
LAST = ROUNDS + 1
LEAVES: dict[int, dict[str, Any]] = {
    1: {"leaves": [f"{ROUNDS} agree"]},
    2: {"leaves": [f"{LAST} vector"], "gone": True},
}
"""Of the devices in Node one sends its vector in the third round and signs nothing, one goes before its vector."""


def in_node(built: Path, url: str, people: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """People as devices in one process of Node, to the end."""
    asked = "".join(json.dumps(one) + "\n" for one in people)
    line = ["node", str(built / "nodes.js"), url]
    done = subprocess.run(line, input=asked, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_devices_of_both_languages_sum_under_masks_what_the_simulator_sums(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rounds are compared with the simulator's tensors, a fourth, which a device leaves, to the integer."""
    twins, heard = worlds.fedmf().own(tmp_path), Heard(monkeypatch)
    people = described(twins)
    shutil.rmtree(twins.begun.path / "bundles")
    edgefr.export(twins.begun)  # without users, so that a server gives it away
    users = list(people)
    apart = users[: TABS + NODES]
    codes = Keys(twins.begun.path).issue(apart)
    given = [{**people[user], "code": codes[user]} for user in apart]
    nodes = [one | LEAVES.get(n, {}) for n, one in enumerate(given[TABS:])]
    over = site(tmp_path / "site", built).over
    transport = by_http(Access(), twins.begun, origins_of(twins.begun, CLASS), LAST, over)
    progress = time_up(monkeypatch, {(ROUNDS, "agree"): 5, (LAST, "vector"): 5})
    options: dict[str, Any] = {"transport": transport, "collecting": SEALED, "progress": progress, "timeout_s": 240.0}
    with (
        worlds.serving(twins.begun, tmp_path / "served", LAST, **options) as (url, future),
        ThreadPoolExecutor(3) as pool,
    ):
        others = {user: people[user] for user in users[TABS + NODES :]}
        asked = [pool.submit(in_node, built, url, nodes), pool.submit(in_tabs, built, url, given[:TABS])]
        python = pool.submit(in_python, twins, url, tmp_path / "states", others)
        found, counts = asked[1].result(200) + asked[0].result(200), python.result(200)
        served = future.result(60)
    assert served.summary["given_up"] == {}
    assert (served.summary["uploads"], served.summary["missing"]) == (6 * ROUNDS + 5, [0] * ROUNDS + [1])
    stays = [LAST] * (TABS + NODES - 2)
    assert [one.get("taken") for one in found] == [*stays[:TABS], LAST, LAST - 1, None]
    assert [one["round"] for one in found] == [*stays, LAST, ROUNDS]
    assert [one.taken for one in counts] == [LAST] * len(counts)
    gone = found[-1]  # it has the tensors after the third round
    simulated, first = (part(run.read_tensors("model"), "shared.") for run in (twins.simulated, twins.begun))
    for name, value in simulated.items():
        got = np.array(gone["tensors"][name]).reshape(value.shape)
        np.testing.assert_allclose(got, value.numpy(), rtol=0, atol=1e-4)
        assert np.abs(got - first[name].numpy()).max() > 1e-2
    for number in range(1, LAST + 1):
        there = [one["vectors"][str(number)] for one in found if number < LAST or one is not gone]
        wanted = np.sum([*there, *heard.vectors[number - 1]], axis=0, dtype=np.int64)
        total = heard.totals[number - 1]
        assert total is not None
        assert (total.clients, total.steps.tolist()) == (6 if number < LAST else 5, wanted.tolist())


def test_the_vectors_of_its_tests_are_what_python_sends() -> None:
    assert sum_vectors.FILE.read_text(encoding="utf-8") == sum_vectors.content() + "\n", (
        "make them anew: python -m tests.edge_js.sum_vectors"
    )
