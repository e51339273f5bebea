"""The battery for a method of one's own is handed on from `edgefr.methods.testing`.

Owns: nothing but the path. Does not own: the checks.
"""

from edgefr.methods.testing import CHECKS, Broken, Result, check_method, examine

__all__ = ["CHECKS", "Broken", "Result", "check_method", "examine"]
