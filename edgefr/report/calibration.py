"""The tables of `edgefr calibrate` say what this host measured, and what follows for the device classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from edgefr.config.sheet import Sheet
from edgefr.fleet import FleetFile
from edgefr.fleet.calibration import Calibration, Calls, Measured
from edgefr.fleet.calibrations.derive import call_ms, step_ms
from edgefr.fleet.ratio import both_modes, stack_of
from edgefr.fleet.spec import CostModel
from edgefr.report.fleet import short


def measured_table(found: Calibration) -> Sheet:
    """Return one row per distinct content of bundles: medians of CPU time on one thread, cold start, peak memory."""
    rows = []
    for content, measured in found.measured.items():
        classes = [name for name, trial in found.classes.items() if trial.content == content]
        line = measured.learn.line() if measured.learn else None
        work = measured.learn.work if measured.learn else None
        step = line[0] + line[1] * work.examples if line and work else None
        rows.append(
            {
                "bundles": _names(classes),
                "variant": found.classes[classes[0]].variant if classes else "-",
                "step\nms": _short(step),
                "examples\na step": _short(work.examples if work else None),
                "recommend\nms": _short(_median(measured.recommend)),
                "encode\nms": _short(_median(measured.encode)),
                "load\ns": _short(measured.recommend.load_s),
                "RAM MB, learn /\nrecommend / encode": " / ".join(_peaks(measured)),
            }
        )
    host = found.host
    title = f"measured: {host.cpu}, one thread, {host.gflops:.0f} GFLOP/s, copy {host.copy_gbs:.1f} GB/s"
    caption = "step: CPU time of a full batch, draws included; load: wall time from a cold start, libraries included"
    return Sheet(title, rows, words=["bundles", "variant"], caption=caption)


def class_table(found: Calibration, spec: FleetFile) -> Sheet:
    """Make one row per device class: times over the spread of its compute rate, and the trial under its limit."""
    known = spec.model_copy(update={"cost": CostModel(mode="analytic", calibration=found)})
    stack, rows = stack_of(spec), []
    for name, trial in found.classes.items():
        device, measured = spec.devices[name], found.measured[trial.content]
        step = None if measured.learn is None else step_ms(measured.learn, found.host, device, stack)
        both = both_modes(known, name)
        rows.append(
            {
                "device class": name,
                "variant": trial.variant,
                "step ms\np10 / p50 / p90": _spread(step),
                "analytic\nstep ms": _short(both[0] if both else None),
                "recommend ms\np10 / p50 / p90": _spread(call_ms(measured.recommend, found.host, device)),
                "encode ms\np10 / p50 / p90": _spread(call_ms(measured.encode, found.host, device)),
                "app MB": f"{trial.app_mb:g}",
                "learn": trial.learn or "-",
                "recommend": trial.recommend,
                "encode": trial.encode or "-",
            }
        )
    caption = (
        "times: derived from the host's by the ratios of compute and copy rates; learn, recommend, encode: measured "
        "on this host with the class's memory as the limit"
    )
    return Sheet(
        "device classes", rows, words=["device class", "variant", "learn", "recommend", "encode"], caption=caption
    )


def _names(classes: Sequence[str]) -> str:
    return classes[0] + (f" and {len(classes) - 1} more" if len(classes) > 1 else "") if classes else "-"


def _median(calls: Calls | None) -> float | None:
    return None if calls is None or calls.cost is None else calls.cost.median_ms


def _peaks(measured: Measured) -> list[str]:
    activities = (measured.learn, measured.recommend, measured.encode)
    return ["-" if a is None or a.peak_mb is None else f"{a.peak_mb:.0f}" for a in activities]


def _spread(values: npt.NDArray | None) -> str:
    return "-" if values is None else " / ".join(_short(float(value)) for value in values)


def _short(value: float | None) -> str:
    return "-" if value is None else short(value)
