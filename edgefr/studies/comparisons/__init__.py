"""Runs are compared with each other: the same users, data and protocol, learned in different ways.

Owns: which runs may be compared, user by user and seed by seed, and the pages of a comparison. Does not own: statistics
(`edgefr.metrics.paired`), or what a run measured.
"""
