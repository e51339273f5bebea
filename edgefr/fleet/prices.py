"""A bundle is priced on a device class without a simulation, by the models that a simulation uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.archive import opened
from edge.bundle import Bundle
from edge.learning import Learning, PhaseRecord
from edge.manifest import Words
from edgefr.config.arguments import checked
from edgefr.config.display import COLUMNS, Brief
from edgefr.config.documents import Document
from edgefr.config.sheet import Sheet
from edgefr.fleet import FleetFile, cost, load_fleet
from edgefr.fleet.calibrations.derive import SHARES, rates
from edgefr.fleet.calibrations.work import FLOAT, of_encoding, of_recommending, of_step
from edgefr.fleet.clients import draw
from edgefr.fleet.plan import Figures, make_plan
from edgefr.fleet.spec import Device
from edgefr.fleet.summary import evidence, weakest
from edgefr.fleet.work import Work
from privacy.errors import InputError, unknown

DRAWN = 2000
"""Devices of the class that a round is priced on: each has a speed and a network of its own."""
INTERACTIONS = 20
TOKENS = 32
MB = 1e6
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Price:
    """These are an activity's p10, p50, p90 over devices, with evidence; `fits`: in the class's app memory."""

    what: str
    seconds: Floats
    joules: Floats
    memory_mb: float
    fits: bool
    bytes_down: float = 0.0
    bytes_up: float = 0.0
    evidence: dict[str, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        names = ("p10", "p50", "p90")
        seconds, joules = (dict(zip(names, v.tolist(), strict=True)) for v in (self.seconds, self.joules))
        rest = ("memory_mb", "fits", "bytes_down", "bytes_up", "evidence")
        head = {"what": self.what, "seconds": seconds, "energy_j": joules}
        return head | {name: getattr(self, name) for name in rest}


@dataclass(frozen=True, repr=False)
class Prices(Brief):
    """These are the prices of a bundle on a device class; `files_mb` is what the device stores and fetches once."""

    bundle: str
    device: str
    app_mb: float
    files_mb: float
    prices: Sequence[Price]
    assumed: Sequence[str]

    def record(self) -> dict[str, Any]:
        return {
            "bundle": self.bundle,
            "class": self.device,
            "app_mb": self.app_mb,
            "files_mb": self.files_mb,
            "prices": [price.record() for price in self.prices],
            "assumed": list(self.assumed),
        }

    @property
    def sheet(self) -> Sheet:
        rows = [
            {
                "what": price.what,
                "s p10 / p50 / p90": _three(price.seconds),
                "J p10 / p50 / p90": _three(price.joules),
                "RAM MB": f"{price.memory_mb:.3g}{'' if price.fits else ' (too much)'}",
                "MB down": f"{price.bytes_down / MB:.3g}",
                "MB up": f"{price.bytes_up / MB:.3g}",
                "evidence: time, energy, RAM": ", ".join(price.evidence.values()),
            }
            for price in self.prices
        ]
        title = f"{self.bundle} on {self.device}: {self.files_mb:.3g} MB stored, an app may use {self.app_mb:g} MB"
        return Sheet(title, rows, ["what", "RAM MB", "evidence: time, energy, RAM"])

    def brief(self) -> list[Any]:
        return [self.sheet.first(COLUMNS), *self.assumed]


def _three(values: Floats) -> str:
    return " / ".join(f"{value:.3g}" for value in values)


@checked
def cost_of(
    bundle: str | Path,
    device_class: str | None = None,
    *,
    devices: str | Path = "devices.yaml",
    device: str | Path | None = None,
    interactions: int = INTERACTIONS,
    keys: Sequence[str | Path] | None = None,
) -> Prices:
    """Say what a bundle costs on a device class: a recommendation, a new text, a round of learning; nothing is run.

    `device_class`: of the fleet file `devices` (None: the class that the bundle was packed for). `device`: a file with
    the figures of one class of one's own instead. `interactions`: of the user who learns. `keys`: public keys of which
    one must have signed the bundle. Raises `InputError` for a bundle that a device would refuse, and an unknown class.

    Example: ``edgefr.cost_of("runs/demo/bundles/phone_sd680", "phone_sd680").record()["prices"]``
    """
    if interactions < 1:
        raise InputError(f"interactions is a whole number of at least 1, got {interactions}")
    if device is not None and device_class is not None:
        raise InputError("--device is a class of your own, and --class one of the fleet file: leave one of them out")
    trusted = None if keys is None else [Path(key) for key in keys]
    with opened(Path(bundle), trusted=trusted) as found:
        name = Path(device).stem if device is not None else device_class or found.manifest.device_class
        spec = _fleet_of_one(Path(devices), name, None if device is None else Path(device))
        return _prices(found, str(bundle), spec, name, interactions)


def _fleet_of_one(devices: Path, name: str, own: Path | None) -> FleetFile:
    """Return a fleet of one class: of the file, or with the figures of one's own file."""
    spec = load_fleet(devices)
    if own is None:
        if name not in spec.devices:
            raise unknown("device class", name, spec.devices)
        return load_fleet(devices, {"fleet": {"share": {name: 1.0}}})
    entry = Document.read(own).validate(Device)
    section = spec.fleet.model_copy(update={"share": {name: 1.0}})
    return FleetFile.model_validate(
        spec.model_copy(update={"devices": {**spec.devices, name: entry}, "fleet": section}).model_dump(by_alias=True)
    )


def _prices(bundle: Bundle, path: str, spec: FleetFile, name: str, interactions: int) -> Prices:
    app_mb, known = spec.devices[name].memory.app_mb.v, evidence(spec, name)
    prices = [_call(bundle, spec, name, "a recommendation, of the whole catalogue", *of_recommending(bundle), False)]
    assumed = [
        f"time and energy: over the speeds and networks of {DRAWN:,} devices of the class; no battery, no pauses"
    ]
    encoder = bundle.config.encoder
    if encoder is not None:
        whole_numbers = not isinstance(encoder, Words) and encoder.dtype in ("i8", "i4")
        what = f"a new text of {TOKENS} tokens"
        prices.append(_call(bundle, spec, name, what, *of_encoding(bundle, TOKENS), whole_numbers))
    learning = bundle.config.learning
    if learning is None:
        assumed.append("the bundle only recommends: it has no round to price")
    else:
        prices.append(_round(bundle, learning, spec, name, interactions))
        assumed.append(f"a round: of a user with {interactions} interactions, {learning.negatives} negatives for each")
        if learning.exchange is not None and learning.exchange.publish is not None:
            assumed.append("a message is sent beside the update, which is not priced")
    worst = {what: weakest(inputs) for what, inputs in known.items()}
    rated = [replace(price, evidence=worst) for price in prices]
    stored = sum(file.size for file in bundle.manifest.files) / MB
    return Prices(path, name, app_mb, stored, rated, assumed)


def _call(
    bundle: Bundle, spec: FleetFile, name: str, what: str, flops: float, traffic: float, whole_numbers: bool
) -> Price:
    """Return the price of one call of a graph, over the spread of the class's compute rate."""
    device, runtime = spec.devices[name], spec.runtimes[spec.fleet.stack]
    fp32 = rates(device.compute.fp32_gflops, 1.0 - SHARES)
    ratio = device.compute.int8_gops.v / device.compute.fp32_gflops.v if whole_numbers else 1.0
    took = cost.inference_seconds(flops, traffic, fp32 * ratio, device.memory.copy_gbs.v)
    seconds = took + cost.overhead_seconds(runtime.step_overhead_ms.v, fp32)
    memory = bundle.manifest.model.memory_mb
    fits = bool(cost.fits(memory, device.memory.app_mb.v))
    return Price(what, seconds, cost.compute_joules(seconds, device.power.active_w.v), memory, fits)


def _round(bundle: Bundle, learning: Learning, spec: FleetFile, name: str, interactions: int) -> Price:
    """Return the price of a round of learning from download to upload, over drawn devices of the class."""
    work, everybody = round_of(bundle, learning, interactions), np.arange(DRAWN)
    clients = draw(spec, [name], np.zeros(DRAWN), 0)
    plan = make_plan(Figures(spec, [name]), clients, everybody, work, 0, 1)
    ends = plan.ends[:, 2]
    joules, down, up = plan.spent(ends)
    return Price(
        "a round: receive, learn, send",
        np.quantile(ends, SHARES),
        np.quantile(joules, SHARES),
        float(plan.memory_mb.max()),
        bool(plan.fits.all()),
        float(down.max()),
        float(up.max()),
    )


def round_of(bundle: Bundle, learning: Learning, interactions: int) -> Work:
    """Count the work of one round of a user with so many interactions, from what the bundle says of itself."""
    phases = [phase for phase in learning.phases if phase.when == "round"]
    examples = {phase.name: _examples(learning, phase, interactions) for phase in phases}
    steps = sum(phase.epochs * ceil(examples[phase.name] / learning.batch_size) for phase in phases)
    read = sum(phase.epochs * examples[phase.name] for phase in phases)
    one = of_step(bundle, min(read / max(1, steps), learning.batch_size)).work()
    shared = sum(int(np.prod(tensor.shape)) for tensor in learning.tensors if tensor.place in ("shared", "received"))
    return replace(one, steps=steps, bytes_down=float(FLOAT * shared))


def _examples(learning: Learning, phase: PhaseRecord, interactions: int) -> int:
    """Count the examples of one epoch of a phase: positives of its part, each with its negatives."""
    share = {"support": phase.support, "query": 1.0 - phase.support}.get(phase.part, 1.0)
    positives = max(1, round(share * interactions))
    return positives if phase.part == "whole" else positives * (1 + learning.negatives)
