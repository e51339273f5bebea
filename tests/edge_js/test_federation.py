"""Tabs of a browser and devices in Python are one federation, which ends where the simulator does."""

from __future__ import annotations

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import edgefr
from edge.bundle import open_bundle
from edge.clients import Clients
from edge.remote import TrafficCounts, join
from edgefr.engine.model import part
from edgefr.serving.keys import Keys
from edgefr.serving.serve import by_http, origins_of
from edgefr.serving.server import Access
from edgefr.serving.site import Site
from edgefr.simulation.runs.run import Run
from tests.devices import open_device
from tests.edge_js.conftest import CHROMIUM
from tests.remote import worlds
from tests.remote.worlds import CLASS, FEDMF, ROUNDS, Twins

pytestmark = pytest.mark.xdist_group("edge_js_people")
ORT = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
TABS, OTHERS = 6, 6
PEOPLE: dict[str, Any] = {**FEDMF, "data_options.users": TABS + OTHERS}
NOISE = {"privacy.mechanism": "gaussian", "privacy.trust": "local", "privacy.clip": 1, "privacy.sigma": 2.0793}
"""An epsilon of 8 over three rounds."""
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")


def described(twins: Twins) -> dict[str, dict[str, Any]]:
    """What a device of each user starts from: the number that keys its draws, private tensors, and items."""
    clients = Clients(open_bundle(twins.bundle))
    return {
        user: {
            "number": str(clients.client(clients.number(user))),
            "private": {name: value.tolist() for name, value in clients.private(clients.number(user)).items()},
            "items": twins.items(user),
        }
        for user in twins.users
    }


def site(folder: Path, built: Path) -> Site:
    """The page of the tests beside a server's own."""
    (folder / "ort").mkdir(parents=True)
    shutil.copy(built / "page.js", folder)
    for name in ORT:
        shutil.copy(built.parent / "node_modules" / "onnxruntime-web" / "dist" / name, folder / "ort")
    (folder / "index.html").write_text('<!doctype html><script type="module" src="/page.js"></script>')
    return Site(folder)


def in_tabs(built: Path, url: str, people: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """People as tabs of one browser, to the end."""
    asked = "".join(json.dumps(one) + "\n" for one in people)
    done = subprocess.run(
        ["node", str(built / "tabs.js"), url], input=asked, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def in_python(twins: Twins, url: str, states: Path, people: dict[str, dict[str, Any]]) -> list[TrafficCounts]:
    """People as devices in Python, a thread each, to the end."""

    def one(user: str) -> TrafficCounts:
        worlds.known(twins.begun, states / user, user)
        device, who = open_device(twins.bundle, states / user, user=user), people[user]
        with device.store.locked():
            state = device.state
            state.facts["number"] = int(who["number"])
            state.put("private", {name: np.array(value, np.float32) for name, value in who["private"].items()})
            device.store.write(state)
        return join(device, url, who["items"])

    with ThreadPoolExecutor(len(people)) as pool:
        return list(pool.map(one, people))


def together(twins: Twins, built: Path, folder: Path) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Rounds of tabs and Python devices: what each tab told at its end, and the shared tensors."""
    people = described(twins)
    shutil.rmtree(twins.begun.path / "bundles")
    edgefr.export(twins.begun)  # without users, so that a server gives it away
    users = list(people)
    codes = Keys(twins.begun.path).issue(users[:TABS])
    origins = origins_of(twins.begun, CLASS)
    transport = by_http(Access(), twins.begun, origins, ROUNDS, site(folder / "site", built).over)
    with (
        worlds.serving(twins.begun, folder / "served", transport=transport, timeout_s=240.0) as (url, future),
        ThreadPoolExecutor(2) as pool,
    ):
        tabs = pool.submit(in_tabs, built, url, [{**people[user], "code": codes[user]} for user in users[:TABS]])
        others = {user: people[user] for user in users[TABS:]}
        python = pool.submit(in_python, twins, url, folder / "states", others)
        found, counts = tabs.result(400), python.result(400)
        future.result(60)
    assert [(one["taken"], one["late"], one["round"]) for one in found] == [(ROUNDS, 0, ROUNDS)] * TABS
    assert [one.taken for one in counts] == [ROUNDS] * OTHERS
    return found, load_file(folder / "served" / "shared.safetensors")


def tensors_of(run: Run) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in part(run.read_tensors("model"), "shared.").items()}


@needs_chromium
def test_tabs_and_python_devices_end_where_the_simulator_does(built: Path, tmp_path: Path) -> None:
    twins = Twins.of(PEOPLE, tmp_path)
    first = tensors_of(twins.begun)
    found, got = together(twins, built, tmp_path)
    for name, value in tensors_of(twins.simulated).items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-4)
        assert np.abs(got[name] - first[name]).max() > 1e-2
    scores = twins.simulated_scores()[:TABS]
    np.testing.assert_allclose(np.array([one["scores"] for one in found]), scores, rtol=0, atol=1e-4)


@needs_chromium
@pytest.mark.slow
def test_with_noise_they_end_as_far_from_the_mean_as_simulated_runs(built: Path, tmp_path: Path) -> None:
    """Every run draws noise of its own. Each one's distance is from the mean of the others."""
    twins = Twins.of({**PEOPLE, **NOISE}, tmp_path)
    runs = [twins.simulated, *(worlds.simulate({**PEOPLE, **NOISE}, ROUNDS, tmp_path / f"{n}") for n in range(7))]
    assert 7.9 < runs[0].summary["privacy"]["eps_guaranteed"] < 8.1
    simulated = [tensors_of(run) for run in runs]
    _, got = together(twins, built, tmp_path)
    for name, values in got.items():
        those = np.stack([one[name] for one in simulated])
        apart = [distance(one, np.delete(those, n, axis=0)) for n, one in enumerate(those)]
        assert 0.9 * min(apart) < distance(values, those[1:]) < 1.1 * max(apart), name
        assert min(apart) > 1e-2, "without noise this says nothing"


def distance(value: np.ndarray, others: np.ndarray) -> float:
    return float(np.sqrt(np.mean((value - others.mean(axis=0)) ** 2)))
