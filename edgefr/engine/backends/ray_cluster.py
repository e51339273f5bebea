"""Ray is connected to here, and imported nowhere else: a cluster, or a Ray of one's own on this machine.

Owns: connecting, and errors where no cluster answers. Does not own: tasks (`ray`, jobs).
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from typing import Any

from privacy.errors import InputError
from privacy.extras import needed

LOCAL = "local"
"""The address of a Ray of one's own."""


@dataclass(frozen=True)
class Connection:
    """This is a connection to Ray, the module `ray`; `mine`: it was started here and ends with `close`."""

    ray: Any
    mine: bool

    def close(self) -> None:
        if self.mine:
            self.ray.shutdown()


def connect(address: str, workers: int) -> Connection:
    """Connect to "HOST:PORT", to "auto" (this machine's cluster), or start a "local" Ray with so many processors.

    Raises `InputError` without the extra `ray` or where no cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise needed("ray") from None
    if ray.is_initialized():
        return Connection(ray, mine=False)
    how: dict[str, Any] = {"num_cpus": workers} if address == LOCAL else {}
    try:
        _knock(address)
        ray.init(address, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False, **how)
    except Exception as error:  # Ray's own have no base of their own, and a start that is too slow is a bare Exception
        reason = " ".join(str(error).split())[:120]
        what = "Ray does not start here" if address == LOCAL else f"no Ray answers at {address}"
        raise InputError(f"{what}: {reason}; see `ray start`") from error
    return Connection(ray, mine=True)


def opened(reference: Any) -> Any:
    """Return what lies in the object store, in a worker of Ray."""
    import ray

    return ray.get(reference)


def _knock(address: str) -> None:
    """Raise `OSError` where HOST:PORT does not answer; Ray itself would try for five minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()
