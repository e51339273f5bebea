"""FedLightGCN is LightGCN (He et al., SIGIR 2020) on the graph that a client has: its user and its newest items.

Owns: its program and settings. Does not own: graphs over clients, which nobody here has (GPFedRec's server makes one).
"""
