"""A plan says what a round would take on each client if nothing interrupted it, and what a part of it has taken."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgefr.config import random_streams as purposes
from edgefr.fleet import cost
from edgefr.fleet.clients import Clients, Indices
from edgefr.fleet.ratio import MeasuredSteps, analytic_step, host_ratio_step, stack_of
from edgefr.fleet.spec import Figure, FleetFile
from edgefr.fleet.work import Work
from privacy import keyed

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


class Figures:
    """These are the figures of the fleet's device classes [classes] and networks [networks], and of its runtime."""

    def __init__(self, spec: FleetFile, classes: list[str]) -> None:
        devices = [spec.devices[name] for name in classes]
        runtime = spec.runtimes[spec.fleet.stack]

        def column(figures: list[Figure]) -> Floats:
            return np.array([figure.v for figure in figures])

        self.copy_gbs = column([d.memory.copy_gbs for d in devices])
        self.app_mb = column([d.memory.app_mb for d in devices])
        self.active_w = column([d.power.active_w for d in devices])
        self.battery_j = np.array([d.power.battery_wh.v * 3600 if d.power.battery_wh else np.inf for d in devices])
        self.hot_after_s = np.array([d.throttle.after_s if d.throttle else np.inf for d in devices])
        self.hot_factor = np.array([d.throttle.factor if d.throttle else 1.0 for d in devices])
        bandwidths = [n.bandwidth for n in spec.networks.values()]
        radios = [n.radio for n in spec.networks.values()]
        self.down_mbps = np.array([b.down_mbps for b in bandwidths])
        self.up_mbps = np.array([b.up_mbps for b in bandwidths])
        self.rtt_ms = np.array([b.rtt_ms for b in bandwidths])
        self.sigma_ln = np.array([b.sigma_ln for b in bandwidths])
        self.j_per_mb_down = np.array([r.j_per_mb_down for r in radios])
        self.j_per_mb_up = np.array([r.j_per_mb_up for r in radios])
        self.tail_j = np.array([r.tail_j for r in radios])
        self.runtime_mb = runtime.rss_mb.v
        self.stack = stack_of(spec)
        calibration = spec.cost.calibration if spec.cost.measured else None
        limits = {name: spec.devices[name].memory.app_mb.v for name in classes}
        self.measured = None if calibration is None else MeasuredSteps.of(calibration, limits)


@dataclass(frozen=True)
class PlannedRound:
    """A plan is a round on each client, uninterrupted; arrays [C] in cohort order.

    `ends` [C, 3]: seconds at which download, compute and upload end. `work_s`: compute at full speed.
    """

    ends: Floats
    work_s: Floats
    memory_mb: Floats
    fits: npt.NDArray[np.bool_]
    bytes_down: Floats
    bytes_up: Floats
    active_w: Floats
    j_per_mb_down: Floats
    j_per_mb_up: Floats
    tail_j: Floats

    def spent(self, elapsed: Floats) -> tuple[Floats, Floats, Floats]:
        """Return joules, bytes down and bytes up after `elapsed` seconds [C]; each stage is used up evenly.

        A device that slows down with heat draws less power in proportion, so work keeps its energy.
        """
        starts = np.concatenate([np.zeros((len(elapsed), 1)), self.ends[:, :2]], axis=1)
        length = np.maximum(self.ends - starts, 1e-12)
        part = np.clip((elapsed[:, None] - starts) / length, 0.0, 1.0)
        part = np.where(elapsed[:, None] >= self.ends, 1.0, part)
        down, up = self.bytes_down * part[:, 0], self.bytes_up * part[:, 2]
        joules = (
            cost.radio_joules(down, self.j_per_mb_down, self.tail_j)
            + cost.compute_joules(self.work_s * part[:, 1], self.active_w)
            + cost.radio_joules(up, self.j_per_mb_up, self.tail_j)
        )
        return joules, down, up


def make_plan(figures: Figures, clients: Clients, cohort: Ids, work: Work, seed: int, number: int) -> PlannedRound:
    """Compute durations, memory and prices of round `number` for the clients of `cohort`."""
    device, network = clients.device[cohort], clients.network[cohort]

    def each(amount: npt.ArrayLike) -> Floats:
        return np.broadcast_to(np.asarray(amount, dtype=np.float64), (len(cohort),))

    work_s = each(work.steps) * _step_seconds(figures, clients, cohort, work)
    compute_s = cost.throttled_seconds(work_s, figures.hot_after_s[device], figures.hot_factor[device])

    z = keyed.normal(keyed.fold(keyed.key(seed, purposes.NETWORK_IN_ROUND, number), cohort), 0)
    factor = clients.rate_factor[cohort] * np.exp(figures.sigma_ln[network] * z)
    bytes_down, bytes_up = each(work.bytes_down), each(work.bytes_up)
    down_s = cost.transfer_seconds(bytes_down, figures.down_mbps[network] * factor, figures.rtt_ms[network])
    up_s = cost.transfer_seconds(bytes_up, figures.up_mbps[network] * factor, figures.rtt_ms[network])

    memory_mb, fits = _memory(figures, device, work)
    return PlannedRound(
        ends=np.cumsum(np.stack([down_s, compute_s, up_s], axis=1), axis=1),
        work_s=work_s,
        memory_mb=each(memory_mb),
        fits=fits,
        bytes_down=bytes_down,
        bytes_up=bytes_up,
        active_w=figures.active_w[device],
        j_per_mb_down=figures.j_per_mb_down[network],
        j_per_mb_up=figures.j_per_mb_up[network],
        tail_j=figures.tail_j[network],
    )


def _memory(figures: Figures, device: Indices, work: Work) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return the MB that training takes on each client, and whether that fits: modelled, or what was measured."""
    if figures.measured is not None:
        return figures.measured.peak_mb[device], figures.measured.fits[device]
    memory_mb = cost.training_memory_mb(
        figures.runtime_mb, work.resident_parameters, work.trained_parameters, work.activation_bytes, work.optimiser
    )
    return memory_mb, cost.fits(memory_mb, figures.app_mb[device])


def _step_seconds(figures: Figures, clients: Clients, cohort: Ids, work: Work) -> Floats:
    """Return seconds of one training step on each client at full speed, in the mode of the file."""
    device = clients.device[cohort]
    copy_gbs, gflops = figures.copy_gbs[device], clients.gflops[cohort].astype(np.float64)
    measured = figures.measured
    if measured is None:
        return analytic_step(work, gflops, copy_gbs, figures.stack).total
    measured.check(work)
    line = measured.fixed_ms[device], measured.example_ms[device]
    return host_ratio_step(work, line, measured.host, gflops, copy_gbs, figures.stack)
