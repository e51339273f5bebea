"""All bundles of a folder are measured: each distinct content once, and each class's bundle under its class's limit."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from edge.bundle import Bundle, open_bundle
from edge.manifest_check import ALWAYS
from edgefr.fleet import FleetFile
from edgefr.fleet.calibration import (
    BROKEN,
    FITS,
    NO_MEMORY,
    SCHEMA,
    Calibration,
    Calls,
    ClassTrial,
    Cost,
    Host,
    Learning,
    Measured,
    PhaseCost,
    read_calibration,
)
from edgefr.fleet.calibrations import work
from edgefr.fleet.calibrations.trial import Limits, Result, quiet_core, run
from privacy.errors import InputError, unknown
from privacy.files import write_json
from privacy.machine import cores
from privacy.progress import Progress

SECONDS = 0.4  # of calls behind each figure
NOT_MEASURED = ("card", "ids", "private")  # roles of files that differ between bundles of one content
FILE = "calibration.json"


@dataclass(frozen=True)
class Place:
    """A place says where bundles lie, which fleet they are for, and where the calibration goes."""

    bundles: Path
    devices: Path
    out: Path


def place_of(where: Path, devices: Path | None, out: Path | None) -> Place:
    """Find the bundles of a run folder (with its own devices.yaml), a folder of bundles, or one bundle.

    Raises `InputError` where there are none.
    """
    folder = where / "bundles" if (where / "experiment.yaml").is_file() else where
    if not (folder / "manifest.json").is_file() and not _folders(folder):
        raise InputError(f"{where} has no bundles; give a run, or a folder that `edgefr export` wrote")
    own = where / "devices.yaml" if (where / "experiment.yaml").is_file() else Path("devices.yaml")
    default = (where.parent if (where / "manifest.json").is_file() else where) / FILE
    return Place(folder, devices or own, out or default)


def calibrate(place: Place, spec: FleetFile, progress: Progress | None = None, timeout_s: float = 120.0) -> Calibration:
    """Measure what `place.out` lacks, and write it there; without news the file is not touched.

    `timeout_s`: wall seconds after which an activity is "too slow". Raises `InputError` for a damaged bundle, a class
    that `spec` lacks, a host that cannot be measured, and a file in the way that is no calibration.
    """
    tell = progress or (lambda stage, done, total, note: None)
    bundles = _open_all(place.bundles, spec)
    core = quiet_core()
    limits = Limits(seconds=timeout_s, core=core)
    tell("calibrate", 0, len(bundles), "this machine")
    known = read_calibration(place.out) if place.out.exists() else None
    host = this_host(known.host if known else None, limits)
    if known is not None and not known.host.same(host):
        known = None
    measured: dict[str, Measured] = {}
    classes: dict[str, ClassTrial] = {}
    for done, (name, bundle) in enumerate(bundles.items()):
        tell("calibrate", done, len(bundles), name)
        content = content_of(bundle)
        if content not in measured:
            measured[content] = (known.measured.get(content) if known else None) or _measure(bundle, limits)
        app_mb = spec.devices[name].memory.app_mb.v
        earlier = known.classes.get(name) if known else None
        if earlier is None or (earlier.content, earlier.app_mb) != (content, app_mb):
            earlier = _trial(bundle, content, measured[content], Limits(app_mb, timeout_s, core))
        classes[name] = earlier.model_copy(update={"bundle_id": bundle.manifest.bundle_id})
    found = Calibration(schema_=SCHEMA, host=host, measured=measured, classes=classes)
    if found != known:
        write_json(place.out, found.model_dump(mode="json", by_alias=True))
    tell("calibrate", len(bundles), len(bundles), "")
    return found


def this_host(known: Host | None, limits: Limits) -> Host:
    """Return this machine; its rates are measured unless `known` has them."""
    facts: dict[str, Any] = {
        "cpu": cpu_name(),
        "cores": cores(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "onnxruntime": version("onnxruntime"),
    }
    if known is not None and all(getattr(known, name) == value for name, value in facts.items()):
        return known
    result = run("host", limits, SECONDS)
    if result.outcome != FITS:
        raise InputError(f"this machine cannot be measured: {result.outcome}; free some memory and try again")
    return Host(**facts, gflops=result.figures["gflops"], copy_gbs=result.figures["copy_gbs"])


def cpu_name() -> str:
    """The processor's name, as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def content_of(bundle: Bundle) -> str:
    """Return the digest of what a bundle's cost depends on; bundles that differ in their users alone share it."""
    files = sorted((f.path, f.sha256) for f in bundle.manifest.files if f.role not in NOT_MEASURED)
    return hashlib.sha256(json.dumps([*files, bundle.manifest.item_count]).encode()).hexdigest()


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path.parent for path in folder.glob("*/manifest.json") if not path.parent.name.startswith("."))


def _open_all(folder: Path, spec: FleetFile) -> dict[str, Bundle]:
    """Open the bundles by device class, in the fleet file's order."""
    out: dict[str, Bundle] = {}
    for path in [folder] if (folder / "manifest.json").is_file() else _folders(folder):
        bundle = open_bundle(path, now=ALWAYS)
        name = bundle.manifest.device_class
        if name not in spec.devices:
            raise unknown("device class", name, spec.devices)
        if name in out:
            raise InputError(f"{path} and {out[name].root} are both for class {name}; give a folder with one of each")
        out[name] = bundle
    return {name: out[name] for name in spec.devices if name in out}


def _measure(bundle: Bundle, limits: Limits) -> Measured:
    """Measure all that a bundle does, one fresh process each."""
    results = {name: run(name, limits, SECONDS, bundle.root) for name in activities(bundle)}
    learned = results.get("learn")
    encoded = results.get("encode")
    return Measured(
        learn=None if learned is None else _learning(bundle, learned),
        recommend=_calls(results["recommend"], *work.of_recommending(bundle)),
        encode=None
        if encoded is None
        else _calls(encoded, *work.of_encoding(bundle, encoded.figures.get("tokens", 0))),
    )


def activities(bundle: Bundle) -> list[str]:
    config = bundle.config
    able = {"learn": config.learning is not None, "recommend": True, "encode": config.encoder is not None}
    return [name for name, can in able.items() if can]


def _calls(result: Result, flops: float, traffic_bytes: float) -> Calls:
    figures = result.figures
    if not figures:
        return Calls(outcome=result.outcome)
    cost = Cost(median_ms=figures["median_ms"], min_ms=figures["min_ms"], flops=flops, traffic_bytes=traffic_bytes)
    return Calls(outcome=result.outcome, load_s=figures["load_s"], peak_mb=figures["peak_mb"], cost=cost)


def _learning(bundle: Bundle, result: Result) -> Learning:
    learning, figures = bundle.config.learning, result.figures
    assert learning is not None
    if not figures:
        return Learning(outcome=result.outcome)
    records = {phase.name: phase for phase in learning.phases}
    phases = []
    for found in figures["phases"]:
        fixed, each = line_through([(n, median) for n, median, _ in found["points"]])
        record = records[found["name"]]
        phases.append(
            PhaseCost(
                name=record.name,
                when=record.when,
                epochs=record.epochs,
                fixed_ms=fixed,
                example_ms=each,
                points=found["points"],
            )
        )
    rounds = [point[0] for phase in phases if phase.when == "round" for point in phase.points]
    step = work.of_step(bundle, max(rounds)) if rounds else None
    return Learning(
        outcome=result.outcome, load_s=figures["load_s"], peak_mb=figures["peak_mb"], phases=phases, work=step
    )


def line_through(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return (fixed, per example) of the line through the first and the last of points (examples, ms), not negative."""
    (few, short), (many, long) = points[0], points[-1]
    if many == few or long <= short:
        return long, 0.0
    each = (long - short) / (many - few)
    fixed = short - each * few
    return (fixed, each) if fixed >= 0 else (0.0, long / many)


def _under(limits: Limits, activity: str, bundle: Bundle) -> str:
    """Return how an activity that succeeds without a memory limit ends under one.

    Any failure of the process is the limit's, whatever it prints; what our own checks say of the bundle's files stays.
    """
    outcome = run(activity, limits, 0.0, bundle.root, least=1).outcome
    of_the_limit = outcome.startswith(BROKEN) and not outcome.startswith(f"{BROKEN}: InputError")
    return NO_MEMORY if of_the_limit else outcome


def _trial(bundle: Bundle, content: str, measured: Measured, limits: Limits) -> ClassTrial:
    """Try a class's bundle under its memory limit; an activity that failed without one is not tried again."""
    outcomes: dict[str, str] = {}
    for name in activities(bundle):
        before = getattr(measured, name).outcome
        outcomes[name] = before if before != FITS else _under(limits, name, bundle)
    assert limits.memory_mb is not None
    return ClassTrial(
        bundle_id=bundle.manifest.bundle_id,
        variant=bundle.manifest.variant,
        content=content,
        app_mb=limits.memory_mb,
        learn=outcomes.get("learn"),
        recommend=outcomes["recommend"],
        encode=outcomes.get("encode"),
    )
