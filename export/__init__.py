"""This room turns a trained local program into the bundles that devices run.

Owns: tracing to ONNX, variants and quantisation, writing and signing bundles. Does not own: training, or which run a
bundle is of.
"""

from export.variants import ClassLimits

__all__ = ["ClassLimits"]
