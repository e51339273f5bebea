"""From a host's measured step to a device's: two ratios, the split between them, and what the fleet makes of it."""

import json

import numpy as np
import pytest
import yaml
from hypothesis import strategies as st

from edgefr.fleet import Fleet, load_fleet
from edgefr.fleet.calibration import Calibration, Host, read_calibration
from edgefr.fleet.ratio import Stack, analytic_step, both_modes, host_ratio_step, stack_of
from edgefr.fleet.summary import cost_modes, evidence
from privacy.errors import InputError
from tests.fleet.calibrations import HOST, calibration, phase, written
from tests.fleet.fleets import CALM, DEVICES, calm, shipped, work

BARE = Stack(overhead_ms=0.0, optimiser_passes=1.0)
host = Host.model_validate(HOST)
DEVICE = "rpi_5_8gb"  # 55 GFLOP/s, 5.5 GB/s, 6900 MB
APP = 6900.0
positive = st.floats(0.1, 1e4)


def test_the_two_parts_scale_by_ratios_of_their_own():
    # the model's host: 3 x 4e9 operations at 0.12 x 100 GFLOP/s, and 12 bytes a parameter at 2 x 8 GB/s
    asked = work(
        examples_per_step=1,
        flops_per_example=4e9,
        resident_parameters=0,
        activation_bytes=0,
        trained_parameters=400e6,
    )
    modelled = analytic_step(asked, 100.0, 8.0, BARE)
    assert (float(modelled.arithmetic), float(modelled.memory)) == pytest.approx((1.0, 0.3))
    # a host that took 2.6 s spent 0.6 s of it on memory; a device with a tenth of the rate and half the copy rate
    assert float(host_ratio_step(asked, (2600.0, 0.0), host, 10.0, 4.0, BARE)) == pytest.approx(2.0 * 10 + 0.6 * 2)


def test_forward_and_backward_count_as_memory_where_the_host_is_bound_by_it():
    asked = work(flops_per_example=10.0, activation_bytes=8e9, trained_parameters=0, resident_parameters=0)
    assert float(analytic_step(asked, 100.0, 8.0, BARE).memory_share) == 1.0
    assert float(host_ratio_step(asked, (3.0, 0.0), host, 1.0, 4.0, BARE)) == pytest.approx(0.006)


@pytest.mark.parametrize(("resident", "read"), [(200e6, 2e6), (1e6, 200e6)], ids=["a table", "a small model"])
def test_weights_are_read_once_where_they_are_in_use(resident, read):
    """Of a table only the rows that an example reads; of a model that is used again and again, what there is of it."""
    asked = work(
        examples_per_step=1,
        flops_per_example=read,
        resident_parameters=resident,
        trained_parameters=0,
        activation_bytes=0,
    )
    modelled = analytic_step(asked, 1e9, 8.0, BARE)  # 4 bytes of a million weights, 3 times, at 2 x 8 GB/s
    assert (float(modelled.arithmetic), float(modelled.memory)) == pytest.approx((0.0, 0.75e-3))


def test_dispatch_counts_as_arithmetic():
    asked = work(examples_per_step=0, trained_parameters=0, resident_parameters=0, activation_bytes=0)
    modelled = analytic_step(asked, 162.0, 8.0, Stack(0.5, 1.0))
    assert (float(modelled.arithmetic), float(modelled.memory)) == pytest.approx((0.5e-3, 0.0))


def test_phases_of_a_round_mix_by_their_epochs():
    two = [phase(1.0, 0.1, epochs=1), phase(5.0, 0.3, epochs=3), phase(99.0, 9.0, when="final")]
    found = Calibration.model_validate(calibration({DEVICE: APP}, phases=two)).learning(DEVICE)
    assert found.line() == pytest.approx(((1 + 15) / 4, (0.1 + 0.9) / 4))
    only_final = Calibration.model_validate(calibration({DEVICE: APP}, phases=[phase(1.0, 1.0, when="final")]))
    assert only_final.learning(DEVICE) is None


def ratio_fleet(tmp_path, app_mb=APP, device=DEVICE, cost=None, **learn):
    """A calm fleet of one class in host-ratio mode."""
    file = written(tmp_path / "c.json", {device: app_mb}, **learn)
    return calm(device, cost={"mode": "host-ratio", "calibration": str(file), **(cost or {})})


def test_the_fleet_takes_the_measured_step(tmp_path):
    spec = ratio_fleet(tmp_path)
    flat = spec.devices[DEVICE].compute.fp32_gflops.model_copy(update={"lo": None, "hi": None})
    device = spec.devices[DEVICE]
    device = device.model_copy(update={"compute": device.compute.model_copy(update={"fp32_gflops": flat})})
    spec = spec.model_copy(update={"devices": spec.devices | {DEVICE: device}})
    asked = work(bytes_down=0)
    plan, _ = Fleet(spec, np.ones(3), 0)._devices.plan(1, np.arange(3), asked)
    share = float(analytic_step(asked, 100.0, 8.0, stack_of(spec)).memory_share)
    step = 3e-3 * ((1 - share) * 100 / 55 + share * 8 / 5.5)  # 1 ms and 0.25 ms for each of 8 examples
    assert 0 < share < 0.5
    assert plan.work_s == pytest.approx(50 * step)
    assert plan.memory_mb.tolist() == [90.0] * 3
    assert plan.fits.all()


def test_the_spread_of_rates_stays(tmp_path):
    plan, _ = Fleet(ratio_fleet(tmp_path), np.ones(200), 0)._devices.plan(1, np.arange(200), work())
    assert 1.2 < plan.work_s.max() / plan.work_s.min() < 70 / 43 + 0.01


def test_memory_is_the_trial_under_the_class_limit_or_the_peak_where_the_limit_has_changed(tmp_path):
    def fits(limit, app_mb, **learn):
        data = calibration({DEVICE: limit}, **learn)
        data["classes"][DEVICE]["learn"] = learn.get("trial", "out of memory")
        (tmp_path / "c.json").write_text(json.dumps(data))
        memory = {"memory": {"app_mb": {"v": app_mb, "kind": "E", "src": "est"}}}
        cost = {"mode": "host-ratio", "calibration": str(tmp_path / "c.json")}
        spec = calm(DEVICE, cost=cost, devices={DEVICE: memory})
        return Fleet(spec, np.ones(2), 0).round(1, [0, 1], work()).failure.tolist()

    assert fits(250.0, 250.0) == [1, 1]  # it peaks at 90 MB, and yet died under the limit
    assert fits(250.0, 100.0) == [0, 0]
    assert fits(250.0, 80.0) == [1, 1]


def test_a_calibration_of_another_model_is_refused(tmp_path):
    fleet = Fleet(ratio_fleet(tmp_path), np.ones(2), 0)
    with pytest.raises(InputError, match=r"another model: its uploads have 200,000 bytes, this run's 123,456; cal"):
        fleet.round(1, [0, 1], work(bytes_up=123_456))
    fleet.round(1, [0, 1], work(bytes_up=200_040, message_bytes=40))  # a message beside it is no other model's


@pytest.mark.parametrize(
    ("over", "error"),
    [
        ({"cost": {"mode": "host-ratio"}}, r"cost.mode: host-ratio needs cost.calibration, a file that"),
        ({"fleet": {"stack": "native_ort"}}, r"measured with python_ort, but fleet.stack is native_ort"),
        ({"fleet": {"share": {"rpi_4_4gb": 1.0}}}, r"no training step of class rpi_4_4gb was measured"),
        ({"cost": {"mode": "guess"}}, r"cost.mode"),
        ({"cost": {"calibration": "nowhere.json"}}, r"cannot read .*nowhere.json"),
    ],
)
def test_what_host_ratio_needs(tmp_path, over, error):
    file = written(tmp_path / "c.json", {DEVICE: APP})
    cost = {"mode": "host-ratio", "calibration": str(file)} if "cost" not in over else over["cost"]
    fleet = {**CALM, "share": {DEVICE: 1.0}, **over.get("fleet", {})}
    with pytest.raises(InputError, match=error) as caught:
        load_fleet(DEVICES, {"fleet": fleet, "cost": cost})
    assert "\n" not in str(caught.value)


def test_a_file_is_named_relative_to_the_fleet_file_and_its_content_is_kept(tmp_path):
    written(tmp_path / "c.json", {DEVICE: APP})
    (tmp_path / "devices.yaml").write_text(DEVICES.read_text().replace("calibration: null ", "calibration: c.json "))
    spec = load_fleet(tmp_path / "devices.yaml")
    assert spec.cost.calibration == read_calibration(tmp_path / "c.json")
    # as a run keeps it: whole, without the file
    (tmp_path / "again.yaml").write_text(
        yaml.safe_dump(spec.model_dump(mode="json", by_alias=True, exclude_none=True), sort_keys=False)
    )
    (tmp_path / "c.json").unlink()
    assert load_fleet(tmp_path / "again.yaml") == spec


def test_both_modes_are_told_side_by_side(tmp_path):
    spec = ratio_fleet(tmp_path, cost={"mode": "analytic"})
    analytic, scaled = both_modes(spec, DEVICE)
    found = cost_modes(spec, [DEVICE, "watch_w5"])
    assert found["mode"] == "analytic"
    assert found["host"] == {"cpu": "x", "gflops": 100.0, "copy_gbs": 8.0}
    assert list(found["steps"]) == [DEVICE]  # the watch was not measured
    assert found["steps"][DEVICE]["ratio"] == pytest.approx(scaled / analytic)
    assert Fleet(spec, np.ones(2), 0).summary()["cost"] == cost_modes(spec, [DEVICE])
    assert cost_modes(shipped(), [DEVICE]) == {"mode": "analytic", "host": None, "steps": {}}


def test_evidence_names_what_was_measured(tmp_path):
    found = evidence(ratio_fleet(tmp_path), DEVICE)
    assert found["seconds"]["host_step_ms"] == "measured"
    assert "step_overhead_ms" not in found["seconds"]
    assert found["seconds"]["fp32_gflops"] == "derived"
    assert found["memory_mb"] == {"peak_rss_mb": "proxy", "app_mb": "derived"}
    assert "host_step_ms" not in evidence(shipped(), DEVICE)["seconds"]


def broken(change):
    data = calibration({DEVICE: APP})
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "is not a calibration"),
        (broken(lambda d: d.update(schema="edgefr.calibration/2")), "schema"),
        (broken(lambda d: d.update(extra=1)), "extra"),
        (broken(lambda d: d["host"].update(gflops=0.0)), "host.gflops"),
        (broken(lambda d: d["host"].update(gflops=float("nan"))), "host.gflops"),
        (broken(lambda d: d["measured"]["c"]["learn"].update(outcome="fine")), "learn.outcome"),
        (broken(lambda d: d["measured"]["c"]["learn"]["phases"][0].update(fixed_ms=-1.0)), "fixed_ms"),
        (" " * 1_000_001, "larger than 1 MB"),
    ],
)
def test_files_that_are_no_calibration_are_refused_in_one_line(tmp_path, text, error):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(InputError, match=error) as caught:
        read_calibration(tmp_path / "c.json")
    assert "\n" not in str(caught.value)
    assert "edgefr calibrate" in str(caught.value)
