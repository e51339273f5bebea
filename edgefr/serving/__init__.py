"""A server whose clients are real devices: the loop of every run, with other hands.

`broker` stands between rounds and devices, `server` is its HTTP side, `devices` is the backend that turns rounds into
client updates and these into shard aggregates, `training` makes a finished run ready to go on with it, `ledger` counts
what devices have released, `serving` is the whole from a run folder to the resulting tensors.

Owns: HTTP, keys, connections, delivery, secure sums of real devices, the lineage's ledger. Does not own: rounds
(`edgefr.engine`), the run that is gone on with (`edgefr.simulation`).
"""
