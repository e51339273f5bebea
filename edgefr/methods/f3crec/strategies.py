"""Strategies against forgetting are handed on from `edgefr.experiment.continual`."""

from edgefr.experiment.continual import STRATEGIES, Strategy, strategy

__all__ = ["STRATEGIES", "Strategy", "strategy"]
