"""A card says of each text encoder what an experiment has to know of it; this is the table of all.

The table is here without torch, so that names can be checked before anything heavy is imported. Owns: the card. Does
not own: what an encoder learns (`edgefr.simulation.encoders`), how a device reads (`edge`).
"""

from __future__ import annotations

from privacy.table import Table


class TextEncoder:
    """This is the card of a text encoder: what an experiment has to know of it.

    `language_model`: it is a BERT, of which smaller students can be distilled and whose attention clients can train.
    """

    name: str
    language_model: bool


ENCODERS: Table[TextEncoder] = Table(
    "text encoder", TextEncoder, home="edgefr.simulation.encoders.known", group="edgefr.text_encoders"
)
"""Every text encoder by its name."""
