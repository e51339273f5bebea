"""There is one folder per method and one table. A method is a local program and values an experiment starts from."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel

from privacy.errors import InputError
from privacy.table import Table

if TYPE_CHECKING:
    import torch

    from edgefr.methods.given import Given
    from export.program import LocalProgram


@dataclass(frozen=True)
class Method:
    """This is one row of the table.

    `build(settings, given)` makes the local program by these settings, which are of the method's own type; it is a
    function, or where one is, "module:name", so that nothing heavy is imported before it is needed. `ablation` is where
    a function is that gives the stages before anything is learned, which are then measured.

    `stages` name the model after the rounds and after local training (None: the method has none). `defaults` are
    experiment values that differ from the general ones; `clients` go before them, by the value of `model.client`, and
    so do `ours` and `released` where that is the fidelity: what is recommended, and what the released code does, where
    either differs from the paper. `needs_text`: items are read as text. `reads`: clients learn from sets of items or
    from sessions in order. `own_rows`: item rows differ from client to client, which neither bundles nor blocks can
    hold. `answered`: the server's rule has an answer for each client, as the program reads it. `between_blocks`: what
    F3CRec's released code does with it as a backbone (values of `continual`), where fidelity is released.
    """

    name: str
    paper: str
    settings: type[BaseModel]
    build: Callable[[Any, Given], LocalProgram] | str
    stages: tuple[str, str | None] = ("federated", None)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    needs_text: bool = False
    ablation: str | None = None
    clients: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ours: Mapping[str, Any] = field(default_factory=dict)
    released: Mapping[str, Any] = field(default_factory=dict)
    reads: Literal["items", "sessions"] = "items"
    own_rows: bool = False
    answered: bool = False
    between_blocks: Mapping[str, Any] = field(default_factory=dict)

    def program(self, settings: BaseModel, given: Given) -> LocalProgram:
        """Return the local program by these settings, on what is given."""
        build = _found(self.build) if isinstance(self.build, str) else self.build
        return cast("LocalProgram", build(settings, given))

    def untrained(
        self, settings: BaseModel, text: torch.Tensor, random_text: torch.Tensor | None, seed: int
    ) -> list[tuple[str, LocalProgram, dict[str, torch.Tensor]]]:
        """The ablation's stages before anything is learned: name, program and shared tensors of each (maybe none)."""
        if self.ablation is None:
            return []
        return cast("list[Any]", _found(self.ablation)(settings, text, random_text, seed))


def _found(place: str) -> Callable[..., Any]:
    """Return the function at "module:name"."""
    module, _, name = place.partition(":")
    return cast("Callable[..., Any]", getattr(importlib.import_module(module), name))


METHODS: Table[Method] = Table("method", Method, home="edgefr.methods.known", group="edgefr.methods")
"""Every method by its name; a method of somebody else's is one more line."""


def method(name: str) -> Method:
    """Return the row of the table. Raises `InputError` with the nearest names when there is none."""
    try:
        return METHODS[name]
    except InputError as error:
        raise InputError(f"{error}; one of your own comes with --plugin MODULE, or edgefr.register") from None
