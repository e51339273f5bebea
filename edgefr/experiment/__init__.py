"""An experiment says what is asked for: its schema, its checks, and how it is read from a file and `--set`.

Owns: fields and their defaults, what goes together, which settings nothing would read, and the cards of methods,
strategies and text encoders that an experiment names. Does not own: what any of them does.
"""

from typing import TYPE_CHECKING

from edgefr.config.faces import face

if TYPE_CHECKING:
    from edgefr.experiment.experiment import Change, Experiment, load_experiment

__all__ = ["Change", "Experiment", "load_experiment"]

__getattr__ = face("edgefr.experiment", dict.fromkeys(__all__, "edgefr.experiment.experiment"))
