"""However a process dies, one of four words says what happened."""

import json
import time

import pytest

from edgefr.fleet.calibrations.probe import milliseconds, repeated
from edgefr.fleet.calibrations.trial import Limits, result_of, run

FINE = json.dumps({"peak_mb": 90.0, "median_ms": 1.0})


def said(error):
    return json.dumps({"error": error})


@pytest.mark.parametrize(
    ("status", "out", "err", "outcome"),
    [
        (0, FINE, "", "fits"),
        (0, "a warning\n" + FINE, "noise on stderr", "fits"),
        (0, json.dumps({"peak_mb": 101.0}), "", "out of memory"),  # over the limit, though the kernel let it
        (1, said("MemoryError: "), "", "out of memory"),
        (1, said("ImportError: Exception caught: std::bad_alloc"), "", "out of memory"),
        (1, said("ImportError: long\n\ntext: x.so: failed to map segment from shared object"), "", "out of memory"),
        (1, said("InputError: m.onnx does not load in onnxruntime 1.31: std::bad_alloc"), "", "out of memory"),
        (1, said("RuntimeException: available memory smaller than requested"), "", "out of memory"),
        (1, said("OSError: [Errno 12] Cannot allocate memory"), "", "out of memory"),
        (1, "", "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.", "out of memory"),
        (134, "", "memory allocation of 728 bytes failed\nskipping backtrace", "out of memory"),
        (-9, "", "", "out of memory"),
        (-11, "", "", "out of memory"),
        (-6, "", "terminate called", "out of memory"),
        (
            1,
            said("InputError: bundle b: model.onnx was changed"),
            "",
            "broken: InputError: bundle b: model.onnx was changed",
        ),
        (1, said("ValueError: first\nsecond"), "", "broken: ValueError: first"),
        (1, "", "Traceback\n  File\nSyntaxError: no", "broken: SyntaxError: no"),
        (3, "", "", "broken: exit status 3"),
        (0, "", "", "broken: exit status 0"),
        (0, "[1, 2]", "", "broken: exit status 0"),
        (-15, "", "", "broken: exit status -15"),
    ],
)
def test_every_end_has_a_word(status, out, err, outcome):
    found = result_of(status, out, err, memory_mb=100.0)
    assert found.outcome == outcome
    assert bool(found.figures) == (outcome == "fits")


def test_a_crash_without_a_limit_is_not_taken_for_want_of_memory():
    assert result_of(-11, "", "", None).outcome == "broken: exit status -11"
    assert result_of(-9, "", "", None).outcome == "out of memory"  # nobody but the kernel's killer sends it


def test_the_host_is_measured_in_a_process_of_its_own():
    found = run("host", Limits(), seconds=0.02)
    assert found.outcome == "fits"
    assert 0.1 < found.figures["gflops"] < 10_000
    assert 0.1 < found.figures["copy_gbs"] < 1000


def test_too_little_memory_and_too_little_time():
    assert run("host", Limits(memory_mb=40.0), seconds=0.02).outcome == "out of memory"
    began = time.monotonic()
    assert run("host", Limits(seconds=0.3), seconds=30.0).outcome == "too slow"
    assert time.monotonic() - began < 10


def test_an_unknown_activity_is_a_fault_in_one_line():
    assert run("fly", Limits(), seconds=0.0).outcome.startswith("broken: KeyError")


def test_samples_leave_out_the_first_call_and_are_enough():
    calls = []

    def call(number):
        calls.append(number)
        return float(number)

    assert repeated(call, seconds=0.0, least=3) == [1.0, 2.0, 3.0]
    assert calls == [0, 1, 2, 3]
    assert milliseconds([0.004, 0.001, 0.002, 0.003]) == {"median_ms": pytest.approx(2.5), "min_ms": pytest.approx(1.0)}
    assert milliseconds([0.004, 0.001, 0.002])["median_ms"] == pytest.approx(2.0)
