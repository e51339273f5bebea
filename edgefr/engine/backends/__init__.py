"""A backend works on shards: in this process, in workers, on Ray, or on real devices.

Owns: the contract of a backend and its transport. Does not own: what a shard computes.
"""
