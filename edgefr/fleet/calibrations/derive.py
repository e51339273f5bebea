"""A device class's figures follow from a host's: p10, p50 and p90 over the spread of the class's compute rate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgefr.fleet.calibration import Calls, Host, Learning
from edgefr.fleet.cost import inference_parts
from edgefr.fleet.ratio import Stack, host_ratio_step, scaled_seconds
from edgefr.fleet.spec import Device, Figure

Floats = npt.NDArray[np.float64]
SHARES = np.array([0.1, 0.5, 0.9])
"""p10, p50 and p90 of times; the fastest devices have the shortest."""


def rates(figure: Figure, shares: npt.ArrayLike) -> Floats:
    """Return quantiles of the rate that clients draw (`clients.draw`): log-uniform from v out to lo, or to hi."""
    u = np.asarray(shares, dtype=np.float64)
    far = np.where(u < 0.5, figure.lo or figure.v, figure.hi or figure.v)
    return np.asarray(figure.v * (far / figure.v) ** np.abs(2.0 * u - 1.0))


def step_ms(learning: Learning, host: Host, device: Device, stack: Stack) -> Floats | None:
    """Return p10, p50, p90 of the milliseconds of a round's largest measured step on a class; None: not measured."""
    line = learning.line()
    if line is None or learning.work is None:
        return None
    gflops = rates(device.compute.fp32_gflops, 1.0 - SHARES)
    return 1e3 * host_ratio_step(learning.work.work(), line, host, gflops, device.memory.copy_gbs.v, stack)


def call_ms(calls: Calls | None, host: Host, device: Device) -> Floats | None:
    """Return p10, p50, p90 of the milliseconds of a recommendation or encoded text on a class; None: not measured.

    The fp32 rates scale int8 graphs too, since the host's int8 rate was not measured.
    """
    if calls is None or calls.cost is None:
        return None
    arithmetic, traffic = inference_parts(calls.cost.flops, calls.cost.traffic_bytes, host.gflops, host.copy_gbs)
    both = float(arithmetic + traffic)
    share = float(traffic) / both if both > 0 else 0.0
    gflops = rates(device.compute.fp32_gflops, 1.0 - SHARES)
    return scaled_seconds(calls.cost.median_ms, share, host, gflops, device.memory.copy_gbs.v)
