"""A device class of one's own is added to a fleet file; figures that are not given come from the nearest class.

Those are marked as estimates.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from edgefr.config.documents import Document
from edgefr.config.packaged_files import shipped
from edgefr.fleet.spec import SHIPPED, Device, FleetFile, load_fleet
from privacy.errors import InputError, unknown
from privacy.files import write_atomic

NAME = r"[a-z0-9][a-z0-9_]{0,63}"
_DEVICES = re.compile(r"^devices:[ \t]*(#.*)?\n", re.MULTILINE)


@dataclass(frozen=True)
class DeviceFigures:
    """These are a device's memory, MB; fp32 rate, GFLOP/s; battery, Wh (0: mains); an app's MB; active W."""

    memory_mb: float
    gflops: float
    battery_wh: float
    app_mb: float | None = None
    active_w: float | None = None
    label: str | None = None


@dataclass(frozen=True)
class Added:
    """This is a class that was added: its entry, the class that it is like, and what was assumed, in words."""

    name: str
    like: str
    entry: dict[str, Any]
    assumed: tuple[str, ...]


def add(path: Path, name: str, known: DeviceFigures, like: str | None = None) -> Added:
    """Add a class to a fleet file, which begins as the one that ships where there is none.

    `like`: the class that other figures come from (None: the nearest by memory and rate, of those with or without a
    battery). Raises `InputError` for a name that is taken or none, figures not above 0, and an unknown class.
    """
    if not re.fullmatch(NAME, name):
        raise InputError(f"a class is named by small letters, digits and _ , got '{name[:60]}'; try my_phone")
    for what, value in (("memory", known.memory_mb), ("rate", known.gflops), ("app memory", known.app_mb)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"the {what} of a device is above 0, got {value:g}")
    if not (math.isfinite(known.battery_wh) and known.battery_wh >= 0):
        raise InputError(f"battery-wh is 0 on mains power, or above; got {known.battery_wh:g}")
    source = path if path.exists() else shipped(SHIPPED)
    spec = load_fleet(source)
    if name in spec.devices:
        raise InputError(f"{path} has a class {name} already; choose another name")
    if like is not None and like not in spec.devices:
        raise unknown("device class", like, spec.devices)
    chosen = like or nearest(spec, known)
    added = _entry(name, known, chosen, spec.devices[chosen])
    Document(dict(added.entry), f"the class {name}").validate(Device)
    write_atomic(path, _with_entry(source.read_text(encoding="utf-8"), added, source))
    load_fleet(path)
    return added


def nearest(spec: FleetFile, known: DeviceFigures) -> str:
    alike = {n: d for n, d in spec.devices.items() if (d.power.battery_wh is None) == (known.battery_wh == 0)}

    def distance(device: Device) -> float:
        memory = math.log(device.memory.total_mb / known.memory_mb)
        return math.hypot(memory, math.log(device.compute.fp32_gflops.v / known.gflops))

    among = alike or spec.devices
    return min(among, key=lambda name: distance(among[name]))


def _entry(name: str, known: DeviceFigures, like: str, device: Device) -> Added:
    """Return the entry: given figures are estimates of whoever gave them, others follow from the class it is like."""
    note, assumed = f"assumed as of {like}", list[str]()
    size, rate = known.memory_mb / device.memory.total_mb, known.gflops / device.compute.fp32_gflops.v

    def told(what: str, value: float | None, other: float, unit: str) -> dict[str, Any]:
        if value is not None:
            return {"v": value, "kind": "E", "note": "as given"}
        rounded = float(f"{other:.3g}")
        assumed.append(f"{what} {rounded:g} {unit}")
        return {"v": rounded, "kind": "E", "note": note}

    fp32 = device.compute.fp32_gflops
    spread = {end: float(f"{value * rate:.3g}") for end, value in (("lo", fp32.lo), ("hi", fp32.hi)) if value}
    entry: dict[str, Any] = {
        "label": known.label or name.replace("_", " "),
        "soc": {**device.soc.model_dump(), "name": f"like {device.soc.name}"},
        "memory": {
            "total_mb": known.memory_mb,
            "app_mb": told("memory an app may use", known.app_mb, device.memory.app_mb.v * size, "MB"),
            "copy_gbs": told("memory copies", None, device.memory.copy_gbs.v, "GB/s"),
        },
        "compute": {
            "fp32_gflops": {"v": known.gflops, **spread, "kind": "E", "note": f"as given, spread {note}"},
            "int8_gops": told("int8", None, device.compute.int8_gops.v * rate, "GOP/s"),
        },
        "power": {
            "idle_w": told("power at rest", None, device.power.idle_w.v, "W"),
            "active_w": told("power at work", known.active_w, device.power.active_w.v, "W"),
            "battery_wh": {"v": known.battery_wh, "kind": "E", "note": "as given"} if known.battery_wh else None,
        },
        "storage": device.storage,
        "networks": dict(device.networks),
    }
    if device.throttle is not None:
        heat = device.throttle
        entry["throttle"] = {"after_s": heat.after_s, "factor": heat.factor, "kind": "E", "note": note}
        assumed.append(f"after {heat.after_s:g} s of work it runs at {heat.factor:g} of its speed")
    assumed.append(f"processor {device.soc.name} ({device.soc.isa}), storage {device.storage}")
    assumed.append("networks " + ", ".join(f"{network} {share:g}" for network, share in device.networks.items()))
    return Added(name, like, entry, tuple(assumed))


def _with_entry(text: str, added: Added, source: Path) -> str:
    lines = yaml.safe_dump({added.name: added.entry}, sort_keys=False, allow_unicode=True, width=110)
    found = _DEVICES.search(text)
    if found is None:
        raise InputError(f"{source} has no line 'devices:' of its own to add a class below; write it on such a line")
    below = re.match(r"(?:[ \t]*(?:#.*)?\n)*([ \t]+)\S", text[found.end() :])
    indent = below.group(1) if below else "  "
    block = "".join(f"{indent}{line}\n" for line in lines.splitlines())
    return text[: found.end()] + block + text[found.end() :]
