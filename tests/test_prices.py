"""What a bundle costs on a device class: the numbers of the cost model, and those of a simulated round."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from edge.bundle import open_bundle
from edgefr.fleet import cost, load_fleet
from edgefr.fleet.prices import cost_of, round_of
from privacy.errors import InputError
from tests.cli import commands
from tests.contract.bundles import bundle
from tests.contract.programs import ITEMS, program

DEVICES = commands.ROOT / "devices.yaml"


@pytest.fixture(scope="module")
def fedmf() -> Path:
    return bundle("fedmf")


def test_a_round_is_counted_from_the_bundle(fedmf: Path):
    opened = open_bundle(fedmf)
    learning = opened.config.learning
    assert learning is not None
    work = round_of(opened, learning, 20)
    epochs = sum(phase.epochs for phase in learning.phases if phase.when == "round")
    examples = 20 * (1 + learning.negatives)
    assert work.steps == epochs * -(-examples // learning.batch_size)
    assert work.steps * work.examples_per_step == pytest.approx(epochs * examples)
    shared = sum(spec.size for spec in program("fedmf").specs.values() if spec.place == "shared")
    assert (work.bytes_down, work.bytes_up) == (4.0 * shared, 4.0 * shared), "the whole table travels both ways"


def test_prices_follow_the_figures_of_the_class(fedmf: Path, tmp_path: Path):
    found = cost_of(fedmf, "watch_w5", devices=DEVICES)
    recommend, learn = found.prices
    spec = load_fleet(DEVICES)
    watch = spec.devices["watch_w5"]
    overhead = cost.overhead_seconds(spec.runtimes[spec.fleet.stack].step_overhead_ms.v, watch.compute.fp32_gflops.v)
    assert recommend.seconds[1] == pytest.approx(float(overhead), rel=0.05), f"{ITEMS} items take next to no time"
    assert recommend.joules == pytest.approx(recommend.seconds * watch.power.active_w.v)
    for price in found.prices:
        assert (np.diff(price.seconds) >= 0).all()
        assert price.seconds[0] < price.seconds[2]
        assert list(price.evidence) == ["seconds", "energy_j", "memory_mb"]
    assert learn.bytes_up > 0
    slower = yaml.safe_load(DEVICES.read_text())["devices"]["watch_w5"]
    slower["compute"] = {"fp32_gflops": 0.66, "int8_gops": 0.8}
    slower["memory"]["app_mb"] = 30
    (tmp_path / "slow_watch.yaml").write_text(yaml.safe_dump(slower))
    own = cost_of(fedmf, devices=DEVICES, device=tmp_path / "slow_watch.yaml")
    assert own.device == "slow_watch"
    assert own.prices[0].seconds[1] == pytest.approx(10 * recommend.seconds[1], rel=0.05)
    assert not own.prices[1].fits
    assert "too much" in str(own)


def test_more_interactions_take_more(fedmf: Path):
    few, many = (cost_of(fedmf, "rpi_zero_2w", devices=DEVICES, interactions=n).prices[-1] for n in (5, 5000))
    assert many.seconds[1] > few.seconds[1]
    assert many.bytes_up == few.bytes_up


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"device_class": "watch"}, "unknown device class 'watch'; did you mean 'watch_w5'"),
        ({"device_class": "watch_w5", "device": "x.yaml"}, "leave one of them out"),
        ({"device": "none.yaml"}, "cannot read none.yaml"),
        ({"device_class": "watch_w5", "interactions": 0}, "at least 1, got 0"),
    ],
)
def test_what_cannot_be_priced_is_refused(fedmf: Path, given: dict, said: str):
    with pytest.raises(InputError, match=said):
        cost_of(fedmf, devices=DEVICES, **given)


def test_a_class_of_ones_own_with_a_wrong_figure_is_one_line(fedmf: Path, tmp_path: Path):
    (tmp_path / "a.yaml").write_text("label: a\nsoc: {name: a}\n")
    with pytest.raises(InputError, match=r"a\.yaml"):
        cost_of(fedmf, devices=DEVICES, device=tmp_path / "a.yaml")


def test_the_command_prints_a_table_and_json(fedmf: Path, tmp_path: Path):
    done = commands.edgefr("cost", fedmf, "--class", "phone_sd680", "--json", cache=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["class"] == "phone_sd680"
    assert set(found["prices"][1]["seconds"]) == {"p10", "p50", "p90"}
    done = commands.edgefr("cost", fedmf, "--class", "phone_sd680", cache=tmp_path)
    assert "a round: of a user with 20 interactions" in done.stdout
    refused = commands.edgefr("cost", tmp_path / "none", cache=tmp_path)
    commands.refused(refused.returncode, refused.stdout, refused.stderr)
