"""`from edgefr.testing import check_method`: the battery that a method of one's own has to pass (`edgefr.methods.testing`)."""

from edgefr.methods.testing import CHECKS, Broken, Result, check_method, examine

__all__ = ["CHECKS", "Broken", "Result", "check_method", "examine"]
