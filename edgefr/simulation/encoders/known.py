"""These are the text encoders that ship."""

from __future__ import annotations

from edgefr.experiment.text_encoder import ENCODERS
from edgefr.simulation.encoders.student import Student
from edgefr.simulation.encoders.words import Hashed, TfIdf

for _encoder in (Student(), Hashed(), TfIdf()):
    ENCODERS.register(_encoder)
