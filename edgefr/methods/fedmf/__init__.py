"""FedMF is matrix factorisation whose item table travels and whose user vectors stay.

Owns: its program and settings. Does not own: the compiled kernel of its form (`edgefr.engine.compiled`).
"""
