"""Measuring real bundles: once per content and host, under each class's limit, into a file the fleet can read."""

import json
import shutil

import pytest

from edge.bundle import open_bundle
from edgefr.fleet.calibration import read_calibration
from edgefr.fleet.calibrations import measure, trial, work
from edgefr.fleet.calibrations.derive import call_ms, rates, step_ms
from edgefr.fleet.ratio import host_ratio_step, stack_of
from edgefr.fleet.spec import Figure
from edgefr.report.calibration import class_table, measured_table
from privacy.errors import InputError
from tests.contract.bundles import CLASS, bundle
from tests.contract.programs import ITEMS
from tests.edge.folders import edit_json, resign
from tests.fleet.fleets import shipped

OTHER = "watch_w5"


def fleet(app_mb=8000.0):
    """The shipped classes, with one more of the name that the tests' bundles have."""
    spec = shipped()
    like = spec.devices["laptop_x86"]
    memory = like.memory.model_copy(update={"app_mb": Figure(v=app_mb, kind="E")})
    return spec.model_copy(
        update={"devices": spec.devices | {CLASS: like.model_copy(update={"label": "x", "memory": memory})}}
    )


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Two classes' bundles of one content: they differ in class and in who their users are."""
    folder = tmp_path_factory.mktemp("bundles")
    shutil.copytree(bundle("transfr mean"), folder / CLASS)
    shutil.copytree(bundle("transfr mean"), folder / OTHER)
    edit_json(folder / OTHER / "private" / "users.json", lambda record: record["users"].reverse())
    resign(folder / OTHER, lambda record: record.update(device_class=OTHER))
    return folder


@pytest.fixture(scope="module")
def place(bundles, tmp_path_factory):
    return measure.place_of(bundles, None, tmp_path_factory.mktemp("out") / "calibration.json")


@pytest.fixture(scope="module")
def found(place):
    return measure.calibrate(place, fleet())


@pytest.fixture
def started(monkeypatch):
    """The activities that are started, as they are."""
    names = []

    def run(activity, *arguments, **named):
        names.append(activity)
        return trial.run(activity, *arguments, **named)

    monkeypatch.setattr(measure, "run", run)
    return names


def test_one_content_is_measured_once_and_tried_for_each_class(found, place):
    assert list(found.classes) == [OTHER, CLASS]  # as in the fleet file
    assert len(found.measured) == 1
    assert {t.content for t in found.classes.values()} == set(found.measured)
    assert [(t.learn, t.recommend, t.encode) for t in found.classes.values()] == [("fits", "fits", None)] * 2
    assert [t.app_mb for t in found.classes.values()] == [150.0, 8000.0]
    assert read_calibration(place.out) == found


def test_the_figures_are_of_the_bundle(found):
    (measured,) = found.measured.values()
    names = [(phase.name, phase.when, phase.epochs) for phase in measured.learn.phases]
    assert names == [("federated fine-tuning", "round", 3), ("local training", "final", 6)]
    # 4 positives, 3 negatives each, and the 4 past positives that this method reads beside them
    assert [point[0] for point in measured.learn.phases[0].points] == [5.0, 20.0]
    assert measured.learn.work.examples == 20.0
    for activity in (measured.learn, measured.recommend):
        assert 0.05 < activity.load_s < 60
        assert 40 < activity.peak_mb < 150  # of the process alone: this one, which launched it, holds torch
    assert 0.01 < measured.recommend.cost.min_ms <= measured.recommend.cost.median_ms < 100


def test_nothing_is_measured_twice(found, place, started):
    before = place.out.stat().st_mtime_ns
    assert measure.calibrate(place, fleet()) == found
    assert started == []
    assert place.out.stat().st_mtime_ns == before


def test_another_limit_is_tried_and_another_host_measures_anew(found, place, started, tmp_path, monkeypatch):
    copied = measure.Place(place.bundles, place.devices, tmp_path / "c.json")
    shutil.copy(place.out, copied.out)
    tight = measure.calibrate(copied, fleet(app_mb=45.0))
    assert started == ["learn", "recommend"]
    assert (tight.classes[CLASS].learn, tight.classes[CLASS].recommend) == ("out of memory", "out of memory")
    assert tight.classes[OTHER] == found.classes[OTHER]
    assert tight.measured == found.measured
    started.clear()
    monkeypatch.setattr(measure, "cpu_name", lambda: "another processor")
    assert measure.calibrate(copied, fleet(app_mb=45.0)).host.cpu == "another processor"
    assert started == ["host", "learn", "recommend", "learn", "recommend", "learn", "recommend"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "broken: SystemError: <function f> returned NULL without setting an exception",
            "out of memory",
        ),
        ("broken: ImportError: cannot import name 'x'", "out of memory"),
        ("broken: exit status 3", "out of memory"),
        ("out of memory", "out of memory"),
        ("too slow", "too slow"),
        ("fits", "fits"),
        (
            "broken: InputError: bundle b: model.onnx was changed",
            "broken: InputError: bundle b: model.onnx was changed",
        ),
    ],
)
def test_what_breaks_under_a_limit_alone_breaks_of_it(place, monkeypatch, said, expected):
    """An import that runs out of memory half-way may fail in any words; the same bundle ended well without a limit."""
    ((content, record),) = measure.calibrate(place, fleet()).measured.items()
    monkeypatch.setattr(measure, "run", lambda *arguments, **named: trial.Result(said))
    tried = measure._trial(open_bundle(place.bundles / CLASS), content, record, trial.Limits(memory_mb=45.0))
    assert tried.learn == tried.recommend == expected


def test_a_slow_bundle_is_too_slow(place, tmp_path):
    alone = measure.place_of(place.bundles / CLASS, None, tmp_path / "c.json")
    trial_of = measure._trial
    bundle_, limits = open_bundle(alone.bundles), trial.Limits(memory_mb=8000.0, seconds=0.01)
    measured = next(iter(read_calibration(place.out).measured.values()))
    assert trial_of(bundle_, "c", measured, limits).learn == "too slow"


def test_classes_follow_from_the_host_by_their_spread(found):
    spec = fleet()
    (measured,) = found.measured.values()
    device, stack = spec.devices[OTHER], stack_of(spec)
    steps = step_ms(measured.learn, found.host, device, stack)
    middle = host_ratio_step(
        measured.learn.work.work(), measured.learn.line(), found.host, device.compute.fp32_gflops.v, 2.0, stack
    )
    assert steps[1] == pytest.approx(1e3 * float(middle))
    assert steps[0] < steps[1] < steps[2]
    calls = call_ms(measured.recommend, found.host, device)
    assert calls[0] < calls[1] < calls[2]
    assert call_ms(measured.encode, found.host, device) is None
    assert rates(Figure(v=5.0, kind="E"), [0.1, 0.9]).tolist() == [5.0, 5.0]


def test_tables_name_classes_outcomes_and_figures(found):
    (row,) = measured_table(found).rows
    assert row["bundles"] == f"{OTHER} and 1 more"
    rows = class_table(found, fleet()).rows
    assert [r["device class"] for r in rows] == [OTHER, CLASS]
    assert all((r["learn"], r["recommend"], r["encode"]) == ("fits", "fits", "-") for r in rows)
    assert all(r["step ms\np10 / p50 / p90"].count("/") == 2 for r in rows)


def test_work_is_counted_from_what_the_bundle_says(bundles):
    opened = open_bundle(bundles / CLASS)
    learning, sizes = opened.config.learning, opened.manifest.model
    step = work.of_step(opened, 20.0)
    adapter = sum(t.shape[0] * (t.shape[1] if len(t.shape) > 1 else 1) for t in learning.tensors if t.place == "shared")
    assert step.upload_bytes == 4 * adapter == 4 * sizes.shared_parameters
    assert (step.trained_parameters, step.flops_per_example) == (adapter, 2 * adapter)
    assert (step.optimiser, step.passes) == ("adam", 3.0)
    width = opened.config.tables[0].width
    flops, traffic = work.of_recommending(opened)
    assert flops == 2 * ITEMS * (sizes.shared_parameters + sizes.private_parameters + width)
    assert traffic >= 3 * 4 * ITEMS * width


def test_what_is_no_place_for_bundles(tmp_path, bundles):
    with pytest.raises(InputError, match="has no bundles; give a run"):
        measure.place_of(tmp_path, None, None)
    with pytest.raises(InputError, match=f"unknown device class '{CLASS}'"):
        measure.calibrate(measure.place_of(bundles, None, tmp_path / "c.json"), shipped())
    shutil.copytree(bundles / CLASS, tmp_path / "two" / "a")
    shutil.copytree(bundles / CLASS, tmp_path / "two" / "b")
    with pytest.raises(InputError, match=f"are both for class {CLASS}"):
        measure.calibrate(measure.place_of(tmp_path / "two", None, tmp_path / "c.json"), fleet())
    (tmp_path / "two" / "a" / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"config\.json has 2 bytes instead of"):
        measure.calibrate(measure.place_of(tmp_path / "two", None, tmp_path / "c.json"), fleet())
    assert not (tmp_path / "c.json").exists()
    (tmp_path / "c.json").write_text(json.dumps({"schema": "other"}))
    with pytest.raises(InputError, match="is not a calibration"):
        measure.calibrate(measure.place_of(bundles, None, tmp_path / "c.json"), fleet())
