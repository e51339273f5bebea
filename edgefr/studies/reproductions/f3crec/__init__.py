"""F3CRec's tables and figures: the published numbers, which runs they need, and how runs become rows beside them.

Owns: this paper's recipes and exhibits. Does not own: how exhibits are made and written.
"""
