"""Functions of ranks and values: ranking metrics, what is kept over blocks, tests of a difference.

Owns: HR@k, NDCG@k and their kind, bootstraps, paired tests, their names and settings. Does not own: models, candidates,
or the ranking itself (`edgefr.simulation.evaluation`).
"""
