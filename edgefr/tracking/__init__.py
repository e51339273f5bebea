"""The contract of a tracker, handed on from `edgefr.simulation.tracking`."""
