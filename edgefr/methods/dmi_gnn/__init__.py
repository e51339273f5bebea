"""DMI-GNN reads a session's items as a graph, and its interests at several levels.

Owns: its program and settings. Does not own: the session graph (`edgefr.methods.session_graph`).
"""
