"""Federated rounds: the work of many clients at once, and the sums that leave them.

Owns: executors (vectorised, one by one, compiled), backends (here, processes, Ray), clipping and noise of releases.
Does not own: who takes part, when rounds end, or what a method's client does.
"""
