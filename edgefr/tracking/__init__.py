"""The contract of a tracker is handed on from `edgefr.simulation.tracking`.

Owns: nothing but the path. Does not own: trackers.
"""
