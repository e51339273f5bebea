"""This room bounds and counts what leaves a device; it also has what every room needs.

Owns: clipping, mechanisms, accounting, ledger, secure sums; errors, files, tables, keyed draws. Does not own: who is
sampled, or models.
"""
