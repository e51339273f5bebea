"""Clients of a known form are trained in one compiled kernel call.

Owns: which programs have such a form, and the kernels. Does not own: programs; results are those of the vectorised
executor.
"""
