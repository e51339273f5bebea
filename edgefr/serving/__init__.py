"""A server whose clients are real devices runs the loop of every run.

`broker` stands between rounds and devices, `server` is its HTTP side, `devices` is the backend that turns rounds into
client updates and these into shard aggregates, `training` prepares a finished run, `ledger` counts what devices have
released, `serve` is the whole from a run folder to the resulting tensors.

Owns: HTTP, keys, connections, delivery, secure sums of real devices, the lineage's ledger. Does not own: rounds
(`edgefr.engine`), the finished run (`edgefr.simulation`).
"""
