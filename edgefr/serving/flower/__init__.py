"""This package lets the devices of a fleet that runs Flower do a run's rounds: a ServerApp and a ClientApp.

What a device does, and what a server makes of it, is that of `edgefr serve` and `edgefr device join`; Flower's messages
carry what HTTP carries there. Owns: that translation. Does not own: rounds, checks and ledger (`edgefr.serving`),
learning (`edge.device`), connections and nodes (Flower).
"""
