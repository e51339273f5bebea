"""The fields of an experiment."""

from __future__ import annotations

KINDS = ("name", "rule")
"""Keys that say of what kind a section is, so that another kind's defaults mean nothing to it."""
