"""Ranking metrics and references that need no learning.

Owns: ranks, HR@k, NDCG@k, Recall@k, and the scorers a model must beat. Does not own: splits, candidates,
models.
"""

from edgefr.metrics.ranking import Ranking, Scorer, evaluate, topk

__all__ = ["Ranking", "Scorer", "evaluate", "topk"]
