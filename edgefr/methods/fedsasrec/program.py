"""FedSASRec is FCUCR's SASRec backbone for clients that learn from one whole sequence; nothing is private."""

from __future__ import annotations

from edgefr.methods.fcucr.program import FCUCR
from edgefr.methods.fcucr.settings import FCUCRSettings
from edgefr.methods.fedsasrec.settings import FedSASRecSettings
from export.given import Given


def build(settings: FedSASRecSettings, given: Given) -> FCUCR:
    alone = FCUCRSettings(encoder="sasrec", personal=False, teacher="none", prototypes="none", **settings.model_dump())
    program = FCUCR(alone, given.items, given.local_epochs)
    program.name = "fedsasrec"
    return program
