"""A text encoder's card is what an experiment knows of it; this is the table of all.

It needs no torch, so that names can be checked early. Owns: the card. Does not own: what an encoder learns
(`edgefr.simulation.encoders`), how a device reads (`edge`).
"""

from __future__ import annotations

from privacy.table import Table


class TextEncoder:
    """This is a text encoder's card; `language_model`: a BERT, which students distil and clients can train."""

    name: str
    language_model: bool


ENCODERS: Table[TextEncoder] = Table(
    "text encoder", TextEncoder, home="edgefr.simulation.encoders.words", group="edgefr.text_encoders"
)
"""Every text encoder by its name."""
