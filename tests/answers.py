"""A run small enough for tests of what the Python API returns."""

from __future__ import annotations

from pathlib import Path

import edgefr

OVERRIDES = [
    "method=fedmf",
    "rounds=2",
    "model.dim=4",
    "protocol.negatives=20",
    "privacy.mechanism=gaussian",
    "privacy.clip=1.0",
    "privacy.epsilon=8",
    "data_options.users=40",
    "data_options.items=120",
    "data_options.interactions=10",
]
DEVICES = Path(__file__).parent.parent / "devices.yaml"
SHARES = {"laptop_x86": 0.6, "phone_sd680": 0.4}


def experiment(*more: str) -> edgefr.Experiment:
    """Return an experiment of seconds, with noise so that its releases are counted."""
    return edgefr.load_experiment(overrides=[*OVERRIDES, *more])


def fleet() -> edgefr.FleetFile:
    """Return the fleet that ships, of two device classes."""
    return edgefr.load_fleet(str(DEVICES), {"fleet": {"share": SHARES}})


def fits_a_screen(shown: str) -> bool:
    """Say whether a text has at most 25 lines of at most 120 columns; the line that names a folder may be longer."""
    lines = shown.splitlines()
    return len(lines) <= 25 and all(len(line) <= 120 for line in lines if not line.startswith(("run:", "wrote ")))
