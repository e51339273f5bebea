"""FedCAR's tables and its Figure 5 are run again, with the whole leave-one-out family at one search budget.

Owns: this paper's recipes and exhibits. Does not own: how exhibits are made and written.
"""
