"""There is one folder per method and one table. A method is a local program and values an experiment starts from."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
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
    """This is what a method may read of the experiment around its own settings in a check.

    `name` is the local program's; `model` its settings as plain values. `rounds` are those of a stage, `total_rounds`
    those of all in which updates leave devices; `interval` rounds lie between transfers of prototypes.
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
    """A method with this is a central reference, which pools everybody's data.

    `learner` is "module:name" of the function (settings, draws, prepared data) -> `Reference`, or several turns of one
    (`edgefr.methods.central.references.Turn`). `batches`: it learns from batches with sampled negatives.
    """

    learner: str
    batches: bool = True


@dataclass(frozen=True)
class Method:
    """This is one row of the table.

    `build(settings, given)` makes the local program, or is "module:name" of the function, so that nothing heavy is
    imported early; so are `ablation` (the stages before anything is learned), `messages` (what clients send beside
    updates, by settings and context; None: nothing) and `check` (refuses settings that do not go with others).

    `defaults` are experiment values that differ from the general ones; stronger are `clients`, by the value of
    `model.client`, and by fidelity `ours` (recommended), `as_written` (the paper, with its own client) and `released`
    (the released code; `released_over` by protocol goes first). `stages` name the model after the rounds and after
    local training (None: there is none).

    `needs_text`: items are read as text. `reads`: clients learn from sets of items, from sessions in order, or from all
    as one sequence. `ordered`: a client's items are read in order. `own_rows`: item rows differ by client, which
    bundles and blocks cannot hold. `stateless`: clients keep nothing private between rounds. `answered`: the server's
    rule answers each client. `grams`: clients send changes of a Gram matrix. `batches`: they learn from batches with
    sampled negatives. `between_blocks`: values of `continual` in F3CRec's released code for it as a backbone.
    `central`: it is a reference, and `build` makes what scores. `whole_catalogue`: tells of `model` whether the loss
    reads all items and no negatives (None: never).
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

    @property
    def across(self) -> bool:
        """Say whether it is a reference across domains, which has a model more with what users have in the target."""
        return self.central is not None and self.stages[1] is not None

    @property
    def protocol(self) -> str:
        """Return the protocol that is run where nobody names one."""
        default = "cross-domain" if self.across else "leave-one-out"
        return str(self.defaults.get("protocol", {}).get("name", default))

    def released_values(self, protocol: str) -> list[Mapping[str, Any]]:
        return [values for values in (self.released_over.get(protocol, {}), self.released) if values]

    def lends(self, to: Method) -> bool:
        """Say whether clients of another method may run this one's program as their backbone.

        Programs over sessions lend an encoder to FCUCR, by settings of its own.
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
        """Return what clients send beside their updates by these settings, or None."""
        found = found_at(self.messages) if isinstance(self.messages, str) else self.messages
        return None if found is None else cast("Prototypes | None", found(settings, context))

    def untrained(
        self, settings: BaseModel, given: Given, random_text: torch.Tensor | None, seed: int
    ) -> list[tuple[str, LocalProgram, dict[str, torch.Tensor]]]:
        """Return the ablation's stages before anything is learned: name, program and shared tensors of each."""
        if self.ablation is None:
            return []
        return cast("list[Any]", found_at(self.ablation)(settings, given, random_text, seed))


def found_at(place: str) -> Callable[..., Any]:
    """Import what "module:name" names."""
    module, _, name = place.partition(":")
    return cast("Callable[..., Any]", attrgetter(name)(importlib.import_module(module)))


def late(place: str) -> Callable[..., Any]:
    """Return a function that calls the one at "module:name", whose module is imported at the first call."""
    return lambda *given: found_at(place)(*given)


METHODS: Table[Method] = Table("method", Method, home="edgefr.methods.known", group="edgefr.methods")
"""Every method by its name; a method of somebody else's is one more line."""


def method(name: str) -> Method:
    """Return the row of the table. Raises `InputError` with the nearest names when there is none."""
    try:
        return METHODS[name]
    except InputError as error:
        raise InputError(f"{error}; one of your own comes with --plugin MODULE, or edgefr.register") from None
