"""GPFedRec gives each client the mean of clients that are like it (Zhang et al., KDD 2024).

Owns: its program and settings. Does not own: the server's graph (`cloud.rules.graph`).
"""
