"""PFedRec has a personal scorer and an item table that is tuned on the device (Zhang et al., IJCAI 2023).

Owns: its program and settings. Does not own: the scorer that several methods share (`edgefr.methods.losses`).
"""
