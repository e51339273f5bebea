"""TransFR's tables of its data sets are counted anew.

Owns: this paper's recipes and exhibits. Does not own: how exhibits are made and written.
"""
