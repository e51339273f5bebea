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

    from edgefr.data.protocol import ProtocolSettings
    from edgefr.metrics.settings import EvaluationSection
    from export.given import Given
    from export.program import LocalProgram
    from privacy.prototypes import Prototypes
    from privacy.settings import PrivacySettings


@dataclass(frozen=True)
class Context:
    """This is all that a method may ask of the experiment around its own settings, where it checks them.

    `name` is that of the local program; `model` are its settings as plain values. `rounds` are those of one stage,
    `total_rounds` those of all in which updates leave devices; `interval` rounds lie between transfers of prototypes.
    """

    name: str
    model: Mapping[str, Any]
    protocol: ProtocolSettings
    strategy: str
    encoder: str
    negatives: int
    rounds: int
    total_rounds: int
    interval: int
    privacy: PrivacySettings
    evaluation: EvaluationSection


@dataclass(frozen=True)
class Central:
    """This says of a method that it is a central reference: it pools everybody's data, so nothing of it is federated.

    `learner` is where a function is that makes what learns (`cloud.references`), as "module:name": (settings, how it
    draws, prepared data) -> `Reference`, or several turns of one (`edgefr.methods.central.references.Turn`).
    `batches`: it learns from batches with sampled negatives.
    """

    learner: str
    batches: bool = True


@dataclass(frozen=True)
class Method:
    """This is one row of the table.

    `build(settings, given)` makes the local program by these settings, which are of the method's own type; it is a
    function, or where one is, "module:name", so that nothing heavy is imported before it is needed. `ablation` is where
    a function is that gives the stages before anything is learned, which are then measured.

    `released_over` goes before `released`, by the name of the protocol: a method's own code has one, and others ported
    it to another.

    `stages` name the model after the rounds and after local training (None: the method has none). `defaults` are
    experiment values that differ from the general ones; `clients` go before them, by the value of `model.client`,
    and so do `ours`, `as_written` and `released` by the fidelity: what is recommended, what the paper has beyond
    defaults (of the paper's own client), and what the released code does. `needs_text`: items are read as text.
    `reads`: clients learn from sets of items, from sessions in order, or from everything they have in its order, as one
    sequence. `own_rows`: item rows differ from client to
    client, which neither bundles nor blocks can hold. `stateless`: clients keep nothing private from one round to the
    next. `answered`: the server's rule has an answer for each client, as the program reads it. `grams`: clients send
    changes of a Gram matrix, as the server's rule reads them. `batches`: they learn from batches with sampled
    negatives, pass after pass, and not from all they have at once. `between_blocks`: what F3CRec's released code does
    with it as a backbone (values of `continual`), where fidelity is released. `central`: it is no federated method, but
    a reference that pools everybody's data, and `build` makes what scores (None: it is federated). `ordered`: a
    client's items are read in the order in which it had them. `messages` says what clients send beside their updates,
    by settings and context (None: never anything). `check`: a function, or where one is, that refuses settings of
    the model which do not go with others of an experiment. `whole_catalogue`: tells of `model` whether the loss reads
    all items, and so no negatives (None: it never does).
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
    as_written: Mapping[str, Any] = field(default_factory=dict)
    released: Mapping[str, Any] = field(default_factory=dict)
    released_over: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reads: Literal["items", "sessions", "sequence"] = "items"
    own_rows: bool = False
    stateless: bool = False
    ordered: bool = False
    answered: bool = False
    grams: bool = False
    batches: bool = True
    between_blocks: Mapping[str, Any] = field(default_factory=dict)
    central: Central | None = None
    messages: Callable[[Any, Context], Prototypes | None] | str | None = None
    check: Callable[[Context], None] | str | None = None
    whole_catalogue: Callable[[Mapping[str, Any]], bool] | None = None

    @property
    def in_order(self) -> bool:
        """Say whether what a client had last counts when a held-out item is asked for."""
        return self.ordered or self.reads == "sequence"

    def released_values(self, protocol: str) -> list[Mapping[str, Any]]:
        """Return what the released code does over a protocol, the strongest values first; nothing where none has it."""
        return [values for values in (self.released_over.get(protocol, {}), self.released) if values]

    def lends(self, to: Method) -> bool:
        """Say whether clients of another method may run this one's program as their backbone.

        What reads sessions lends an encoder, which FCUCR puts in the place of its own, by settings of its own.
        """
        fits = self.reads == to.reads and (self.reads == "items" or self.settings is to.settings)
        return fits and "backbone" not in self.defaults

    def fits(self, context: Context) -> None:
        """Raise, by `edgefr.config.validation.fault`, what `check` refuses of an experiment."""
        if self.check is not None:
            (found_at(self.check) if isinstance(self.check, str) else self.check)(context)

    def program(self, settings: BaseModel, given: Given) -> LocalProgram:
        """Return the local program by these settings, on what is given."""
        build = found_at(self.build) if isinstance(self.build, str) else self.build
        return cast("LocalProgram", build(settings, given))

    def sent(self, settings: BaseModel, context: Context) -> Prototypes | None:
        """Return what clients send beside their updates by these settings; None: nothing."""
        found = found_at(self.messages) if isinstance(self.messages, str) else self.messages
        return None if found is None else cast("Prototypes | None", found(settings, context))

    def untrained(
        self, settings: BaseModel, given: Given, random_text: torch.Tensor | None, seed: int
    ) -> list[tuple[str, LocalProgram, dict[str, torch.Tensor]]]:
        """The ablation's stages before anything is learned: name, program and shared tensors of each (maybe none)."""
        if self.ablation is None:
            return []
        return cast("list[Any]", found_at(self.ablation)(settings, given, random_text, seed))


def found_at(place: str) -> Callable[..., Any]:
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
