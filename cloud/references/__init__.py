"""Central references learn from everybody's interactions in one place, for comparison: no federation, no privacy.

Owns: what they learn from, how they learn and score. Does not own: splits, metrics, when learning stops.
"""
