"""A server whose clients are real devices: the simulator's rounds, with other hands.

`exchange` is the desk between rounds and devices, `server` its HTTP counter, `crew` turns rounds into updates and
releases into what a round sums, `book` counts what they have released, `serving` is the whole from a run folder to the
resulting tensors.
"""
