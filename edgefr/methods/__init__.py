"""These recommenders learn on devices: a folder a method, each with a local program and its settings.

Owns: what a client does in a round (tensors, phases, losses, scores) and what a method starts from. Does not own: the
loop, how clients are vectorised (`edgefr.engine`), or what other rooms need to know of a method
(`edgefr.experiment.method`).
"""

from typing import TYPE_CHECKING

from edgefr.config.faces import face

if TYPE_CHECKING:
    from edgefr.experiment.method import METHODS, Central, Method, method

__all__ = ["METHODS", "Central", "Method", "method"]

__getattr__ = face("edgefr.methods", dict.fromkeys(__all__, "edgefr.experiment.method"))
