"""A device's step time is derived from a measured host step.

Arithmetic and memory traffic scale by ratios of their own: a Raspberry Pi 4 computes a tenth as fast as an x86 core but
copies half as fast. The split of the measured time is taken from the analytic model (`fleet.cost`) with the host's
measured rates:

arithmetic   operations / (efficiency x rate), and the fixed cost of a step, which is dispatch
memory       the optimiser's traffic, and forward and backward where the host is bound by reading and writing

t_device = t_host x [(1 - m) x G_host / G_device + m x bw_host / bw_device],  m = memory / (arithmetic + memory)

Limits: the host ran one thread, while a class's rate is of all cores that it may use, so a device whose runtime keeps
to one core is slower by up to their number; rates of large products say little of small ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgefr.fleet import cost
from edgefr.fleet.calibration import FITS, Calibration, Host
from edgefr.fleet.spec import FleetFile
from edgefr.fleet.work import Work
from privacy.errors import InputError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Stack:
    """These are a step's fixed ms on the fit's host, and the optimiser's passes through memory."""

    overhead_ms: float
    optimiser_passes: float


def stack_of(spec: FleetFile) -> Stack:
    runtime = spec.runtimes[spec.fleet.stack]
    return Stack(runtime.step_overhead_ms.v, runtime.optimiser_passes.v)


@dataclass(frozen=True)
class MeasuredSteps:
    """These are training steps measured on a host, by device class [classes].

    Fixed ms and ms per example; peak MB of the process; whether it ran within the class's app memory (where the file
    changed that since, whether the peak fits). `upload_bytes` of a round tell models apart.
    """

    host: Host
    fixed_ms: Floats
    example_ms: Floats
    peak_mb: Floats
    fits: npt.NDArray[np.bool_]
    upload_bytes: Floats

    @classmethod
    def of(cls, calibration: Calibration, app_mb: Mapping[str, float]) -> MeasuredSteps:
        """Return the rows of the classes of `app_mb`, each of which must have been measured."""
        lines, peaks, fits, uploads = [], [], [], []
        for name, limit in app_mb.items():
            found = calibration.learning(name)
            assert found is not None, name
            line, work = found.line(), found.work
            assert line is not None, name
            assert work is not None, name
            lines.append(line)
            peaks.append(found.peak_mb or 0.0)
            trial = calibration.classes[name]
            fits.append(trial.learn == FITS if trial.app_mb == limit else peaks[-1] <= limit)
            uploads.append(work.upload_bytes)
        fixed, each = np.array(lines, dtype=np.float64).T
        return cls(calibration.host, fixed, each, np.array(peaks), np.array(fits), np.array(uploads))

    def check(self, work: Work) -> None:
        """Raise `InputError` where the measured steps are of another model: one whose uploads have another size."""
        asked = np.unique(np.asarray(work.bytes_up) - np.asarray(work.message_bytes))
        if len(asked) and not np.isin(self.upload_bytes, asked).all():
            raise InputError(
                f"cost.calibration is of another model: its uploads have {self.upload_bytes[0]:,.0f} bytes, this run's "
                f"{asked[0]:,.0f}; calibrate bundles of this model, or set cost.mode to analytic"
            )


@dataclass(frozen=True)
class StepTime:
    """A training step takes these seconds in the analytic model, by what it is bound by; arrays broadcast."""

    arithmetic: Floats
    memory: Floats

    @property
    def total(self) -> Floats:
        return self.arithmetic + self.memory

    @property
    def memory_share(self) -> Floats:
        """Return the share of the step that is memory traffic; 0 for a step of no time."""
        return np.divide(self.memory, self.total, out=np.zeros_like(self.total), where=self.total > 0)


def analytic_step(work: Work, gflops: npt.ArrayLike, copy_gbs: npt.ArrayLike, stack: Stack) -> StepTime:
    """Return the model's training step of `work` at rates `gflops` and `copy_gbs`.

    A weight in use costs a multiply-add per example; rows of a table that no example reads cost nothing.
    """
    forward = np.asarray(work.flops_per_example, dtype=np.float64)
    weights = np.minimum(np.asarray(work.resident_parameters), forward / 2)
    flops = np.asarray(work.examples_per_step) * forward * work.passes
    traffic = 4.0 * work.passes * weights + 2.0 * np.asarray(work.activation_bytes)
    both = cost.compute_seconds(flops, traffic, gflops, copy_gbs, work.width)
    bound_by_arithmetic = both > np.asarray(traffic) / (2e9 * np.asarray(copy_gbs))
    passes = stack.optimiser_passes if work.optimiser == "adam" else 1
    update = cost.optimiser_seconds(np.asarray(work.trained_parameters), copy_gbs, work.optimiser, passes)
    overhead = cost.overhead_seconds(stack.overhead_ms, gflops)
    arithmetic = np.where(bound_by_arithmetic, both, 0.0) + overhead
    memory = np.where(bound_by_arithmetic, 0.0, both) + update
    return StepTime(*np.broadcast_arrays(arithmetic, memory))


def scaled_seconds(
    host_seconds: npt.ArrayLike, memory_share: npt.ArrayLike, host: Host, gflops: npt.ArrayLike, copy_gbs: npt.ArrayLike
) -> Floats:
    """Return the seconds on a device of `host_seconds` on the host, `memory_share` of it memory traffic."""
    share = np.asarray(memory_share, dtype=np.float64)
    ratio = (1.0 - share) * host.gflops / np.asarray(gflops) + share * host.copy_gbs / np.asarray(copy_gbs)
    return np.asarray(np.asarray(host_seconds) * ratio)


def host_ratio_step(
    work: Work,
    line: tuple[npt.ArrayLike, npt.ArrayLike],
    host: Host,
    gflops: npt.ArrayLike,
    copy_gbs: npt.ArrayLike,
    stack: Stack,
) -> Floats:
    """Return the seconds of a step of `work` on devices, from the host's measured line (fixed ms, ms per example)."""
    fixed, each = (np.asarray(value, dtype=np.float64) for value in line)
    on_host = 1e-3 * (fixed + each * np.asarray(work.examples_per_step))
    share = analytic_step(work, host.gflops, host.copy_gbs, stack).memory_share
    return scaled_seconds(on_host, share, host, gflops, copy_gbs)


def both_modes(spec: FleetFile, name: str) -> tuple[float, float] | None:
    """Return ms of the measured step on a middling device of a class, (analytic, host-ratio); None: not measured."""
    known = spec.cost.calibration
    found = None if known is None else known.learning(name)
    line = None if found is None else found.line()
    if known is None or found is None or line is None or found.work is None:
        return None
    device, work, stack = spec.devices[name], found.work.work(), stack_of(spec)
    gflops, copy_gbs = device.compute.fp32_gflops.v, device.memory.copy_gbs.v
    analytic = float(analytic_step(work, gflops, copy_gbs, stack).total)
    return 1e3 * analytic, 1e3 * float(host_ratio_step(work, line, known.host, gflops, copy_gbs, stack))
