"""Held-out items are ranked by models and by references that need no learning.

Owns: rankings, recommended lists, references, the table of what was measured. Does not own: the metrics' formulas
(`edgefr.metrics`).
"""
