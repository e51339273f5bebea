"""Every method gets the same search budget: what is searched, by which rules, on validation items alone.

Owns: search spaces, trials, budgets. Does not own: rounds, or test items, which it never sees.
"""
