"""The page of the Python API names what `__all__` of the public packages reaches; mkdocstrings writes it out."""

from __future__ import annotations

from importlib import import_module

PUBLIC = {
    "edgefr": "The experimenter's side. What each of these returns, with examples, is on [From Python](../api.md).",
    "edge": "The device's side: numpy and onnxruntime, no torch.",
    "edgefr.testing": "The battery that holds [a method of your own](../howto-method.md) to the contract.",
}
"""The packages whose names are public, and what each is for."""


def python_page() -> str:
    """Return a page that asks mkdocstrings for every public name."""
    out = ["# Python API", "", "Public is what `__all__` of these three packages reaches.", ""]
    for package, about in PUBLIC.items():
        out += [f"## {package}", "", about, ""]
        out += [f"::: {package}.{name}\n" for name in import_module(package).__all__]
    return "\n".join(out)
