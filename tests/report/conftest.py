"""Small runs of every kind, made once, and a real browser without a network."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import edgefr

DEVICES = Path(__file__).resolve().parents[2] / "devices.yaml"
DATA = ("data_options.users=60", "data_options.items=160", "data_options.interactions=12")
ROUNDS = ("rounds=3", "evaluation.every=1", "fleet.share={laptop_x86: 0.5, phone_sd680: 0.3, speaker_512: 0.2}")
FEDMF = (*ROUNDS, "method=fedmf", "model.dim=4")
KINDS = {
    "private": (*FEDMF, "privacy.mechanism=gaussian", "privacy.clip=1", "privacy.epsilon=8"),
    "local": (*FEDMF, "privacy.mechanism=gaussian", "privacy.clip=1", "privacy.epsilon=4", "privacy.trust=local"),
    "plain": (*FEDMF, "seed=1", "evaluation.keep=last"),
    "blocks": (*ROUNDS, "method=f3crec", "model.dim=4", "protocol.min_interactions=2"),
    "sessions": (
        *ROUNDS,
        "method=fcucr",
        "protocol.name=sessions",
        "protocol.gap_minutes=40000",
        "protocol.negatives=30",
    ),
    "central": ("method=mf",),
    "async": (*FEDMF, "fleet.rounds.policy=async"),
    "across": (
        *(*ROUNDS, "method=transfr", "protocol.name=cross-domain", "protocol.source=books", "protocol.target=films"),
        *("encoder.kind=hash", "model.local_training_epochs=1", "protocol.negatives=20"),
    ),
}
"""Settings of a run of each kind, beside those of all."""
SHIPPED = "private"
"""The run that has bundles, too."""


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a run of a kind, which is made when it is first asked for."""
    place = tmp_path_factory.mktemp("runs")

    def run(kind: str) -> Path:
        folder = place / kind
        if not folder.exists():
            experiment = edgefr.load_experiment(overrides=[*DATA, *KINDS[kind]])
            edgefr.simulate(experiment, DEVICES, out=folder, bundles=kind == SHIPPED)
            if kind == SHIPPED:
                edgefr.audit(folder, ["game", "sign-split"], trials=200)
        return folder

    return run


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Headless Chromium that reaches no network; tests skip where it is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install selenium")
    from selenium.webdriver.chrome.service import Service

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("Chromium is not installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    quiet = ("disable-quic", "no-first-run", "disable-background-networking", "disable-component-update")
    for name in ("headless", "no-sandbox", "disable-gpu", *quiet, "disable-sync", "hide-scrollbars"):
        options.add_argument(f"--{name}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    found.execute_cdp_cmd("Network.enable", {})
    found.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    yield found
    found.quit()
