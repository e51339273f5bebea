"""FedSASRec is the local program of FCUCR's SASRec backbone alone, for clients that learn from one whole sequence.

Shared: item table and encoder. Private: nothing.
"""

from __future__ import annotations

from edgefr.methods.fcucr.program import FCUCR
from edgefr.methods.fcucr.settings import FCUCRSettings
from edgefr.methods.fedsasrec.settings import FedSASRecSettings
from export.given import Given


def build(settings: FedSASRecSettings, given: Given) -> FCUCR:
    """Build the program by these settings."""
    alone = FCUCRSettings(encoder="sasrec", personal=False, teacher="none", prototypes="none", **settings.model_dump())
    program = FCUCR(alone, given.items, given.local_epochs)
    program.name = "fedsasrec"
    return program
