"""A method of anybody's own is held here to what every method has to keep: `check_method(program)`.

    from edgefr.methods.testing.battery import check_method

    check_method(MyProgram(...))

The data are generated, so a program of a small catalogue (60 items, narrow tensors) with its usual learning rates
tells most and takes seconds. What is simulated is what is shipped only for programs that pass.

Owns: the checks and the cases they run on. Does not own: methods.
"""

from edgefr.methods.testing.battery import CHECKS, Broken, Result, check_method, examine

__all__ = ["CHECKS", "Broken", "Result", "check_method", "examine"]
