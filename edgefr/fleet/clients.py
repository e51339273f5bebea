"""Each client has a device, speed and network, drawn once and kept for good: a slow client stays slow."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgefr.config import random_streams as purposes
from edgefr.fleet.spec import FleetFile
from privacy import keyed

Indices = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clients:
    """These are arrays [clients]: `device` indexes the fleet's classes, `network` its networks.

    `gflops`: the client's sustained fp32 rate. `rate_factor`: its bandwidth over its network's median.
    """

    device: Indices
    network: Indices
    gflops: npt.NDArray[np.float32]
    rate_factor: npt.NDArray[np.float32]


def draw(spec: FleetFile, classes: list[str], activity: Floats, seed: int) -> Clients:
    """Give every client a device, a rate within its class's lo..hi, a network and a bandwidth."""
    ids = np.arange(len(activity))
    rates = [spec.devices[name].compute.fp32_gflops for name in classes]
    counts = apportion([spec.fleet.share[name] for name in classes], len(activity))
    middle = np.array([rate.v for rate in rates])
    device = devices_by_activity(counts, middle, activity, spec.fleet.activity_correlation, seed)

    low = np.array([rate.lo or rate.v for rate in rates])
    high = np.array([rate.hi or rate.v for rate in rates])
    u = keyed.uniform(keyed.fold(keyed.key(seed, purposes.DEVICE_SPEED), ids), 0)
    far = np.where(u < 0.5, low[device], high[device])  # log-uniform from v out to lo, or to hi: the median stays v
    gflops = middle[device] * (far / middle[device]) ** np.abs(2.0 * u - 1.0)

    network = _networks(spec, classes, device, seed)
    sigma = np.array([n.bandwidth.sigma_ln for n in spec.networks.values()])
    z = keyed.normal(keyed.fold(keyed.key(seed, purposes.NETWORK_MEDIAN), ids), 0)
    factor = np.exp(sigma[network] * z)
    return Clients(device, network, gflops.astype(np.float32), factor.astype(np.float32))


def apportion(shares: list[float], clients: int) -> npt.NDArray[np.int64]:
    """Share out whole numbers of clients in proportion, by largest remainder; they sum to `clients`.

    >>> apportion([0.5, 0.3, 0.2], 11).tolist()
    [6, 3, 2]
    """
    exact = np.asarray(shares) / np.sum(shares) * clients
    counts = np.floor(exact + 1e-9).astype(np.int64)
    short = clients - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    return counts


def devices_by_activity(
    counts: npt.NDArray[np.int64], rates: Floats, activity: Floats, correlation: float, seed: int
) -> Indices:
    """Draw a class per client [clients]: exactly `counts` of each, speed and `activity` tied by a Gaussian copula.

    `correlation` is Spearman's, of activity with a latent continuous speed; ties of few classes lower it. Clients of
    equal activity are ordered at random.
    """
    ids = np.arange(len(activity))

    def normals(purpose: str) -> Floats:
        return keyed.normal(keyed.fold(keyed.key(seed, purpose), ids), 0)

    pearson = 2.0 * np.sin(np.pi * correlation / 6.0)  # of normals whose ranks correlate by `correlation`
    by_activity = np.lexsort((normals(purposes.ACTIVITY_TIES), activity))
    score = np.empty(len(ids))
    score[by_activity] = np.sort(normals(purposes.ACTIVITY_SCORE))
    latent = pearson * score + np.sqrt(max(0.0, 1.0 - pearson**2)) * normals(purposes.DEVICE_SCORE)

    slowest_first = np.argsort(rates, kind="stable")
    device = np.empty(len(ids), dtype=np.uint16)
    device[np.argsort(latent, kind="stable")] = np.repeat(slowest_first, counts[slowest_first])
    return device


def _networks(spec: FleetFile, classes: list[str], device: Indices, seed: int) -> Indices:
    names = list(spec.networks)
    u = keyed.uniform(keyed.fold(keyed.key(seed, purposes.NETWORK_CLASS), np.arange(len(device))), 0)
    out = np.empty(len(device), dtype=np.uint16)
    for index, name in enumerate(classes):
        mix = spec.fleet.networks or spec.devices[name].networks
        used = [n for n in names if mix.get(n, 0.0) > 0]
        edges = np.cumsum([mix[n] for n in used])[:-1]
        members = np.flatnonzero(device == index)
        positions = np.array([names.index(n) for n in used])
        out[members] = positions[np.searchsorted(edges, u[members], side="right")]
    return out
