"""These are the text encoders that ship."""

from __future__ import annotations

from edgefr.encoders import ENCODERS
from edgefr.encoders.student import Student
from edgefr.encoders.words import Hashed, TfIdf

for _encoder in (Student(), Hashed(), TfIdf()):
    ENCODERS.register(_encoder)
