"""TransFR reads items' texts through an adapter, and tunes a head on the device (Zhang et al., 2024).

Owns: adapters, heads, LoRA clients. Does not own: the text encoder (`cloud`, `edgefr.simulation.encoders`).
"""
