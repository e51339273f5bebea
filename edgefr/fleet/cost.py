"""A round costs a device seconds, joules and megabytes, from its figures and the work asked of it.

Pure functions of numbers or arrays, which broadcast. Names carry the units: seconds, joules, MB and GB of 1e6 and 1e9
bytes, GFLOP/s of 1e9 operations (a multiply-add counts two), Mbit/s of 1e6 bits. These are a model's outputs, not
measurements: the constants below were fitted on one x86 host.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

Optimiser = Literal["sgd", "adam"]
Value = npt.ArrayLike
Array = npt.NDArray[np.float64]

HOST_GFLOPS = 162.0  # sustained fp32 rate of the host on which per-step overheads were measured
ROUND_TRIPS = 3  # per transfer: open the connection, agree on keys, ask; an estimate
RUNTIME_SPARE_MB = 20.0  # allocator slack and buffers above the terms that are counted
MEMORY_FRACTION = 0.8  # of the memory an app may use, what training may take
_WIDTHS, _EFFICIENCY = (128.0, 312.0), (0.12, 0.19)  # share of the SGEMM rate a training step reaches
_INFERENCE_EFFICIENCY = 0.45
_OPTIMISER_BYTES = {"sgd": 12.0, "adam": 28.0}  # per parameter: p, g (m, v) read and p (m, v) written, 4 bytes each
_STATE_BYTES = {"sgd": 4.0, "adam": 12.0}  # per trained parameter: gradient, and Adam's two moments


def efficiency(width: Value) -> Array:
    """Return the share of the sustained SGEMM rate that training reaches at hidden width `width`, fitted on two shapes.

    >>> efficiency([64, 128, 220, 312, 768]).round(3).tolist()
    [0.12, 0.12, 0.155, 0.19, 0.19]
    """
    return np.interp(np.asarray(width, dtype=float), _WIDTHS, _EFFICIENCY)


def transformer_forward_flops(layers: int, hidden: int, feed_forward: int, tokens: int) -> float:
    """Count the operations of one forward pass over one sequence.

    >>> transformer_forward_flops(4, 312, 1200, 32)
    296484864.0
    """
    per_layer = 2 * tokens * (4 * hidden**2 + 2 * hidden * feed_forward) + 4 * tokens**2 * hidden
    return float(layers * per_layer)


def transformer_activation_bytes(layers: int, hidden: int, heads: int, batch: int, tokens: int) -> float:
    """Return the bytes of fp32 activations that a training step keeps for its backward pass."""
    return float(2 * layers * batch * tokens * hidden * (34 + 5 * heads * tokens / hidden))


def compute_seconds(flops: Value, bytes_touched: Value, gflops: Value, copy_gbs: Value, width: Value) -> Array:
    """Return the seconds of forward and backward of a step, bound by arithmetic or by `bytes_touched`.

    Copy rates count each byte once although it is read and written, so traffic runs at twice `copy_gbs`.
    """
    arithmetic = np.asarray(flops) / (efficiency(width) * np.asarray(gflops) * 1e9)
    return np.maximum(arithmetic, np.asarray(bytes_touched) / (2e9 * np.asarray(copy_gbs)))


def optimiser_seconds(trained: Value, copy_gbs: Value, optimiser: Optimiser, passes: Value = 1) -> Array:
    """Return the seconds of the optimiser's memory traffic; `passes` is 1 for a fused update, 4 for single operators.

    >>> float(optimiser_seconds(14.25e6, 1.30, "adam").round(4))
    0.1535
    """
    traffic = np.asarray(passes) * _OPTIMISER_BYTES[optimiser] * np.asarray(trained, dtype=float)
    return np.asarray(traffic / (2e9 * np.asarray(copy_gbs)))


def overhead_seconds(host_ms: Value, gflops: Value) -> Array:
    """Fixed cost of a step (dispatch, small operators): the host's, scaled by the ratio of compute rates."""
    return np.asarray(np.asarray(host_ms) * 1e-3 * HOST_GFLOPS / np.asarray(gflops))


def inference_parts(flops: Value, weight_bytes: Value, gops: Value, copy_gbs: Value) -> tuple[Array, Array]:
    """Return seconds of arithmetic and of reading the weights in a forward pass, each as if the other took no time."""
    arithmetic = np.asarray(flops) / (_INFERENCE_EFFICIENCY * np.asarray(gops) * 1e9)
    return np.asarray(arithmetic), np.asarray(np.asarray(weight_bytes) / (2e9 * np.asarray(copy_gbs)))


def inference_seconds(flops: Value, weight_bytes: Value, gops: Value, copy_gbs: Value) -> Array:
    """Return the seconds of a forward pass at rate `gops`, bound by arithmetic or by reading the weights."""
    return np.maximum(*inference_parts(flops, weight_bytes, gops, copy_gbs))


def throttled_seconds(seconds: Value, after_s: Value, factor: Value) -> Array:
    """Return the elapsed time of `seconds` of full-speed work where speed drops to `factor` of it after `after_s`.

    >>> throttled_seconds([30.0, 90.0], 60.0, 0.5).tolist()
    [30.0, 120.0]
    """
    hot = np.maximum(np.asarray(seconds) - np.asarray(after_s), 0.0)
    return np.asarray(np.asarray(seconds) + hot * (1.0 / np.asarray(factor) - 1.0))


def transfer_seconds(transferred_bytes: Value, mbps: Value, rtt_ms: Value) -> Array:
    """Return the seconds of one transfer one way: round trips, then the payload. Nothing to send takes no time.

    >>> transfer_seconds([0, 1_000_000], 8.0, 100.0).round(3).tolist()
    [0.0, 1.3]
    """
    size = np.asarray(transferred_bytes, dtype=float)
    seconds = ROUND_TRIPS * np.asarray(rtt_ms) * 1e-3 + 8.0 * size / (np.asarray(mbps) * 1e6)
    return np.where(size > 0, seconds, 0.0)


def training_memory_mb(
    runtime_mb: Value, resident: Value, trained: Value, activation_bytes: Value, optimiser: Optimiser
) -> Array:
    """Return the resident MB of fp32 training: runtime, weights, gradients, optimiser state, activations, slack.

    `resident` and `trained` count parameters.
    """
    values = 4.0 * np.asarray(resident, dtype=float) + _STATE_BYTES[optimiser] * np.asarray(trained, dtype=float)
    return np.asarray(np.asarray(runtime_mb) + (values + np.asarray(activation_bytes)) / 1e6 + RUNTIME_SPARE_MB)


def fits(memory_mb: Value, app_mb: Value) -> npt.NDArray[np.bool_]:
    """Say whether training that needs `memory_mb` may run where an app may use `app_mb`."""
    return np.asarray(np.asarray(memory_mb) <= MEMORY_FRACTION * np.asarray(app_mb))


def compute_joules(seconds: Value, active_w: Value) -> Array:
    """Return the gross energy of computing: the whole device's power while it works, idle power included."""
    return np.asarray(np.asarray(seconds) * np.asarray(active_w))


def radio_joules(transferred_bytes: Value, j_per_mb: Value, tail_j: Value) -> Array:
    """Return the energy of one transfer: the payload, and the radio staying awake after it, once per burst.

    >>> radio_joules([0, 80_000], 4.4, 12.3).round(2).tolist()
    [0.0, 12.65]
    """
    size = np.asarray(transferred_bytes, dtype=float)
    return np.where(size > 0, size / 1e6 * np.asarray(j_per_mb) + np.asarray(tail_j), 0.0)
