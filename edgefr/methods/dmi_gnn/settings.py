"""These are DMI-GNN's settings."""

from __future__ import annotations

from pydantic import Field

from edgefr.methods.prefix_settings import PrefixSettings


class DMIGNNSettings(PrefixSettings):
    """DMI-GNN reads a session as a graph, and makes several interests of it by several patterns of places."""

    interests: int = Field(3, ge=2, description="interests of a session, each by a pattern of places of its own")
    long: int = Field(
        8,
        ge=0,
        description="items from which on a session's interests are held apart; of shorter ones together (items)",
    )
    regular: float = Field(1.0, ge=0, description="weight of the term that holds interests apart or together")
