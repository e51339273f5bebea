"""FedRAP has an item table that is everybody's and one that is each client's own (Li et al., ICLR 2024).

Owns: its program and settings. Does not own: how own tables are held (`edgefr.engine.tables`).
"""
