"""A study is made of many runs: sweeps, tuning, comparisons, audits, and the papers' tables.

Owns: which runs are made or read, and what is concluded from them. Does not own: one run (`edgefr.simulation`).
"""
