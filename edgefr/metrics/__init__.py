"""This package has ranking metrics and references that need no learning.

Owns: ranks, HR@k, NDCG@k, Recall@k, what is learned and kept over blocks, the test of a difference, and the scorers a
model must beat. Does not own: splits, candidates, models.
"""

from edgefr.metrics.lists import rank_lists, topk
from edgefr.metrics.ranking import Ranking, Scorer, evaluate

__all__ = ["Ranking", "Scorer", "evaluate", "rank_lists", "topk"]
