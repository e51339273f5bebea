"""FCF solves each client's vector in closed form and sends gradients of the item table (Ammad-ud-din et al., 2019).

Owns: its program and settings. Does not own: the server's Gram matrix (`cloud.rules.gram`).
"""
