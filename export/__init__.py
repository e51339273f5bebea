"""From a trained local program to the bundles that devices run."""

from export.variants import ClassLimits

__all__ = ["ClassLimits"]
