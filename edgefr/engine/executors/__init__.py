"""Ways to run a shard of clients: vectorised, one by one for debugging, session by session, DP-SGD.

Owns: how a program's phases run over a shard's tensors. Does not own: compiled clients (`edgefr.engine.compiled`).
"""
