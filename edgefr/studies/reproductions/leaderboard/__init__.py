"""The leaderboard is one table of methods at one search budget: quality, cost of a round, and quality at an epsilon.

Owns: its columns and notes. Does not own: recipes and runs, which are those of FedCAR's Table 2.
"""
