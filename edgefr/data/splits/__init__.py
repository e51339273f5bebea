"""A protocol cuts a data set: training items, held-out items, candidates, blocks and sessions.

Owns: the cut and its settings. Does not own: the stages and rounds over it (`edgefr.simulation`).
"""
