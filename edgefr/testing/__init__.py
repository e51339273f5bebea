"""The battery for a method of one's own is handed on from `edgefr.methods.testing`."""

from edgefr.methods.testing import CHECKS, Broken, Result, check_method, examine

__all__ = ["CHECKS", "Broken", "Result", "check_method", "examine"]
