"""The contract of a tracker is handed on from `edgefr.simulation.tracking`."""
