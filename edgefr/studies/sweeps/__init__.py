"""A sweep runs one experiment many times:

a grid over its fields, a search beside it, and what privacy costs in utility.
"""
