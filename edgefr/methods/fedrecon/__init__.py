"""FedRecon makes a client's vector anew in every round (Singhal et al., NeurIPS 2021).

Owns: its program and settings. Does not own: the draws of what is made anew (`edge.round_init`).
"""
