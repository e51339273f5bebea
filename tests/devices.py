"""Devices of tests, whose policy lets anything leave: their data are nobody's."""

from pathlib import Path
from typing import Any

from edge.device import Device
from edge.policy import OPEN

POLICY = "unprotected: true\nsigned: false\ntrust: central\nepsilon: 1.0e+6\nleast_noise: 1.0e-6\nleast_cohort: 1\n"
"""The same, as a file."""


def open_device(bundle: str | Path, state: str | Path, **options: Any) -> Device:
    """Return a device that lets anything leave."""
    return Device(bundle, state, **{"policy": OPEN, **options})


def policy_file(folder: Path) -> Path:
    """Write the policy that lets anything leave; its file."""
    path = folder / "open-policy.yaml"
    path.write_text(POLICY)
    return path
