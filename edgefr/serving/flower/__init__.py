"""This package lets a Flower fleet's devices do a run's rounds: a ServerApp and a ClientApp.

Devices and server do the same as in `edgefr serve` and `edgefr device join`; Flower's messages replace HTTP. Owns: that
translation. Does not own: rounds, checks and ledger (`edgefr.serving`), learning (`edge.device`), connections and nodes
(Flower).
"""
