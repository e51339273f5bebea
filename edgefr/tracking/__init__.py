"""`from edgefr.tracking.tracker import Tracker`: where the contract of a tracker is documented to be (`edgefr.simulation.tracking`)."""
