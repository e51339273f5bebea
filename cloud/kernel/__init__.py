"""These hot loops of the server are compiled to machine code at their first call.

Owns: the loops. Does not own: when they are called (`cloud.graph`, `cloud.cosines`).
"""
