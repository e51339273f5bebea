"""Data sets: readers of public archives and of people's own files, and the splits that protocols make of them.

Owns: names, options, checks and numbering of what is read; tasks with their held-out items and candidates. Does not
own: text vectors (`cloud`), or the rounds over a task (`edgefr.simulation`).
"""

from typing import TYPE_CHECKING

from edgefr.config.faces import face

if TYPE_CHECKING:
    from edgefr.data.datasets import GIVEN, READERS, Reader, check, load, names
    from edgefr.data.interactions import Catalogue, Dataset

_HOMES = dict.fromkeys(["GIVEN", "READERS", "Reader", "check", "load", "names"], "edgefr.data.datasets")
_HOMES |= dict.fromkeys(["Catalogue", "Dataset"], "edgefr.data.interactions")

__all__ = ["GIVEN", "READERS", "Catalogue", "Dataset", "Reader", "check", "load", "names"]

__getattr__ = face("edgefr.data", _HOMES)
