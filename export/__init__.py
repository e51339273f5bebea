"""This room turns a trained local program into the bundles that devices run."""

from export.variants import ClassLimits

__all__ = ["ClassLimits"]
