"""The summary says what the rounds of a fleet took, in all and by class, and how good the figures behind it are."""

from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.fleet.evidence import EVIDENCE
from edgefr.fleet.histogram import QUANTITIES, Histogram
from edgefr.fleet.ratio import both_modes
from edgefr.fleet.spec import FleetFile


def summarise(
    spec: FleetFile, classes: list[str], clients: npt.NDArray[np.int64], histogram: Histogram, kinds: list[str]
) -> dict[str, Any]:
    """Return counts, spreads (p10/p50/p90 per client and round) and evidence as plain JSON values.

    Seconds, energy and bytes are of the clients that started; memory is of all that were invited.
    """
    by_class = {
        name: {"label": spec.devices[name].label, "clients": int(clients[i])}
        | _part(histogram, kinds, i)
        | {"evidence": evidence(spec, name)}
        for i, name in enumerate(classes)
    }
    return {
        "policy": spec.rounds.policy,
        "stack": spec.fleet.stack,
        "cost": cost_modes(spec, classes),
        "clients": int(clients.sum()),
        **_part(histogram, kinds, None),
        "classes": by_class,
    }


def _part(histogram: Histogram, kinds: list[str], device: int | None) -> dict[str, Any]:
    outcomes = histogram.outcomes.sum(axis=0) if device is None else histogram.outcomes[device]
    totals = histogram.totals.sum(axis=0) if device is None else histogram.totals[device]
    summed = {f"total_{name}": float(v) for name, v in zip(QUANTITIES, totals, strict=True) if name != "memory_mb"}
    return {
        "invited": int(outcomes.sum()),
        "contributed": int(outcomes[0]),
        "failures": {kind: int(n) for kind, n in zip(kinds[1:], outcomes[1:], strict=True) if n},
        **{name: histogram.quantiles(name, device) for name in QUANTITIES},
        **summed,
    }


def evidence(spec: FleetFile, name: str) -> dict[str, dict[str, str]]:
    """Return, for each simulated quantity of a device class, the kinds of figure it rests on.

    A quantity is no better than its weakest input; a host's peak memory is a proxy. Bytes are counted, so not listed.
    """
    device, runtime = spec.devices[name], spec.runtimes[spec.fleet.stack]
    measured = spec.cost.measured
    mix = spec.fleet.networks or device.networks
    networks = [spec.networks[n] for n, share in mix.items() if share > 0]
    seconds = {
        "fp32_gflops": EVIDENCE[device.compute.fp32_gflops.kind],
        "copy_gbs": EVIDENCE[device.memory.copy_gbs.kind],
        **(dict.fromkeys(("host_step_ms", "host_gflops", "host_copy_gbs"), EVIDENCE["M"]) if measured else {}),
        **({} if measured else {"step_overhead_ms": EVIDENCE[runtime.step_overhead_ms.kind]}),
        "bandwidth": _joined({n.bandwidth.kind for n in networks}),
    }
    if device.throttle:
        seconds["throttle"] = EVIDENCE[device.throttle.kind]
    energy = {
        "active_w": EVIDENCE[device.power.active_w.kind],
        "radio": _joined({n.radio.kind for n in networks}),
        "seconds": weakest(seconds),
    }
    resident = {"peak_rss_mb": EVIDENCE["P"]} if measured else {"rss_mb": EVIDENCE[runtime.rss_mb.kind]}
    memory = {**resident, "app_mb": EVIDENCE[device.memory.app_mb.kind]}
    return {"seconds": seconds, "energy_j": energy, "memory_mb": memory}


def cost_modes(spec: FleetFile, classes: list[str]) -> dict[str, Any]:
    """Return the mode of the step times and, where a host measured, both modes' ms of a middling device's step."""
    both = {name: both_modes(spec, name) for name in classes}
    steps = {
        name: {"analytic_ms": found[0], "host_ratio_ms": found[1], "ratio": found[1] / found[0]}
        for name, found in both.items()
        if found is not None and found[0] > 0
    }
    known = spec.cost.calibration
    host = None if known is None else {"cpu": known.host.cpu, **known.host.model_dump(include={"gflops", "copy_gbs"})}
    return {"mode": spec.cost.mode, "host": host, "steps": steps}


def _joined(kinds: set[str]) -> str:
    return ", ".join(EVIDENCE[kind] for kind in EVIDENCE if kind in kinds)


def weakest(inputs: dict[str, str]) -> str:
    """Return the weakest kind of evidence among a quantity's inputs."""
    order = list(EVIDENCE.values())
    return max((tag for tags in inputs.values() for tag in tags.split(", ")), key=order.index)
