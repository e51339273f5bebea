"""A sweep runs one experiment many times: a grid over its fields, a search beside it, and what privacy costs.

Owns: points, their runs, utility against epsilon. Does not own: one run (`edgefr.simulation`).
"""
