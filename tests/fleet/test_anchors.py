"""The table of published latencies: its arithmetic, and that every figure says where it is from."""

import importlib.util
import sys

import pytest

from edgefr.config.documents import Document
from tests.fleet.fleets import DEVICES, shipped

# by its path: other packages bring a `benchmarks` of their own
_found = importlib.util.spec_from_file_location("device_anchors", DEVICES.parent / "benchmarks" / "devices.py")
devices = sys.modules["device_anchors"] = importlib.util.module_from_spec(_found)
_found.loader.exec_module(devices)


@pytest.fixture(scope="module")
def data():
    return Document.read(devices.ANCHORS).values


def anchor(published, predicted):
    return devices.Anchor("a", "b", published, predicted)


def test_errors_and_ranks():
    some = [anchor(100, 150), anchor(10, 5), anchor(1, 1)]
    assert [a.error for a in some] == pytest.approx([0.5, -0.5, 0.0])
    assert devices.mean_error(some) == pytest.approx(1 / 3)
    assert devices.rank_correlation(some) == pytest.approx(1.0)
    assert devices.rank_correlation([anchor(1, 3), anchor(2, 2), anchor(3, 1)]) == pytest.approx(-1.0)


def test_operations_are_those_of_the_papers(data):
    gflops = {name: devices.flops_of(model) / 1e9 for name, model in data["models"].items()}
    # 5.7, 3.1, 22.5 and 1.2 are the papers' own counts; ours leave out what is not a matrix product
    assert gflops["mobilebert_128"] == pytest.approx(5.7, rel=0.07)
    assert gflops["mobilebert_tiny_128"] == pytest.approx(3.1, rel=0.03)
    assert gflops["bert_base_128"] == pytest.approx(22.5, rel=0.02)
    assert gflops["tinybert4_128"] == pytest.approx(1.2, rel=0.05)


def test_predictions_are_the_cost_models(data):
    spec = shipped()
    found = {a.name: a for a in devices.latencies(data, spec)}
    big = found["MobileBERT, Pixel 4, 4 threads"]
    # 2 x 128 x 20,250,624 + 4 x 128^2 x 128 x 24 operations at 0.45 x 109 GFLOP/s
    assert big.predicted == pytest.approx(1e3 * (5_184_159_744 + 201_326_592) / (0.45 * 109e9))
    pi = found["MobileNetV2 int8, Raspberry Pi 5"]
    assert pi.predicted == pytest.approx(1e3 * 0.6e9 / (0.45 * spec.devices["rpi_5_8gb"].compute.int8_gops.v * 1e9))
    ratios = {a.name: a for a in devices.ratios(data, spec)}
    assert ratios["int8 over fp32, A76"].predicted == pytest.approx(55 / 131)
    assert ratios["int8 over fp32, A76"].published == pytest.approx(0.45)


def test_the_ranks_agree(data):
    assert devices.rank_correlation(devices.latencies(data, shipped())) >= devices.RHO


def test_every_figure_has_a_source(data):
    for part in ("latencies", "ratios", "excluded"):
        for entry in data[part]:
            assert entry["src"] in data["sources"], entry["name"]
    for name, figure in data["figures"].items():
        assert figure["src"] in {*data["sources"], None}, name
        assert figure["note"], name
    assert all(entry["why"] for entry in data["excluded"])
