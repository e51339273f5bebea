"""FedNCF is neural collaborative filtering with a shared tower.

Owns: its program and settings. Does not own: losses (`edgefr.methods.losses`).
"""
