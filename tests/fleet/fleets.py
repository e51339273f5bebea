"""Small fleets for tests: the shipped file, with parts of it replaced."""

import json
from pathlib import Path
from typing import Any

from edgefr.fleet import FleetFile, Work, load_fleet

DEVICES = Path(__file__).parents[2] / "devices.yaml"
CALM: dict[str, Any] = {"availability": None, "battery": None, "dropout": 0.0}


def shipped(fleet: dict[str, Any] | None = None, rounds: dict[str, Any] | None = None, **rest: Any) -> FleetFile:
    """The shipped file with these changes."""
    return load_fleet(DEVICES, {"fleet": fleet or {}, "rounds": rounds or {}, **rest})


def calm(device: str, rounds: dict[str, Any] | None = None, **rest: Any) -> FleetFile:
    """A fleet of one device class, always there, on one network without spread."""
    quiet = {"wifi_home": {"bandwidth": {"sigma_ln": 0.0}}}
    fleet = {**CALM, "share": {device: 1.0}, "networks": {"wifi_home": 1.0}}
    return shipped(fleet, rounds, **{"networks": quiet, **rest})


def work(**changes: Any) -> Work:
    """A small client's round: 50 steps of 8 examples through a little head."""
    usual = {
        "steps": 50,
        "examples_per_step": 8,
        "flops_per_example": 1e5,
        "trained_parameters": 50_000,
        "resident_parameters": 200_000,
        "activation_bytes": 1e5,
        "bytes_down": 400_000,
        "bytes_up": 200_000,
    }
    return Work(**{**usual, **changes})


def read(lines: str) -> list[dict[str, Any]]:
    """Events from the lines in which they are logged."""
    return [json.loads(line) for line in lines.splitlines()]
