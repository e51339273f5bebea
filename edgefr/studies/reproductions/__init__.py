"""Tables and figures of the papers are run again, one folder per paper, and printed beside the published numbers.

Owns: the printed numbers, which runs they need, how runs become rows. Does not own: the runs (`edgefr.simulation`).
"""
