"""The contract of a tracker is handed on from `edgefr.simulation.tracking.tracker`."""

from edgefr.simulation.tracking.tracker import TRACKERS, Log, Tracker

__all__ = ["TRACKERS", "Log", "Tracker"]
