"""A bundle says this about learning: its phases and their graphs, how examples are drawn, what may leave the device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from edge.optimiser import BETA_2
from edge.records import Grown, Inside, Plain, Record, Round
from edge.replay import PICKS
from edge.sampling import EVERYTHING, Selection, turns
from privacy.errors import InputError
from privacy.grid import LONGEST_SCALE, step_for
from privacy.mechanism import Noise, law_of

Name = Annotated[Plain, Field(min_length=1, max_length=128)]
Extent = Annotated[int, Field(ge=1, lt=1 << 31)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PROTOTYPE = "prototype"
"""What a device tells the server in a message beside its update, among the names of what leaves."""
LONGEST_CONTEXT = 1024  # items
LONGEST = 2**30  # steps of a clip: what is added to it still fits in 32 bits


class AnewRecord(Record):
    """This says how a tensor is made anew: normal numbers keyed by the bundle's seed, the round and the client."""

    purpose: Name = Field(description="keys its numbers")
    scale: Amount = Field(description="their standard deviation; 0: zeros")


class TensorRecord(Grown):
    """This is one tensor of the local program; of `rows` tensors, [items, width], a device changes rows it reads."""

    name: Name = Field(description="the program's name of it")
    shape: list[Extent] = Field(min_length=1, max_length=8, description="one client's; rows: [items, width]")
    place: Literal["shared", "private"] = Field(description="shared tensors travel, private ones never leave")
    kind: Literal["dense", "rows"] = Field(description="rows: one per item of the catalogue")
    anew: AnewRecord | None = Field(None, description="how it is made anew when local work begins; null: it is kept")

    later: ClassVar[frozenset[str]] = frozenset({"anew"})


class PhaseRecord(Grown):
    """A phase is one stage of local work, with the graph of one step of it."""

    name: Name = Field(description="name of the phase")
    graph: Inside = Field(description="ONNX graph of one optimiser step")
    data: Inside | None = Field(None, description="file of the graph's large tensors; null: all in the graph")
    purpose: Name = Field(description="keys the draws of its examples")
    when: Literal["round", "final"] = Field(description="round: in every federated round; final: stays on the device")
    epochs: int = Field(ge=1, le=10_000, description="passes over the client's examples")
    optimiser: Literal["sgd", "adam"] = Field(description="its state is fresh in every round")
    dense: list[Name] = Field(description="dense tensors it trains, in the order of the graph's flat vector")
    tables: list[Name] = Field(description="tables whose rows it trains")
    lr: dict[Name, Amount] = Field(description="learning rate by tensor")
    beta_2: float = Field(BETA_2, gt=0, lt=1, description="Adam's decay of the second moment")
    part: Literal["all", "support", "query", "whole"] = Field(
        "all", description="which of the positives it learns from; whole: all at once, without negatives"
    )
    support: float = Field(
        EVERYTHING.support, gt=0, lt=1, description="share of the support set, cut anew in each round; of all: unread"
    )
    pairs: bool = Field(False, description="whether each positive's own negatives are known to the step")
    context: int = Field(0, ge=0, le=LONGEST_CONTEXT, description="items before each positive that come with it")
    summed: bool = Field(False, description="whether a batch's loss is the sum over its examples, not their mean")
    alternates: bool = Field(False, description="whether it takes a step after each step of the phase before it")
    accumulates: bool = Field(
        False, description="whether its steps read shared tensors as they were received, while what they change adds up"
    )

    later: ClassVar[frozenset[str]] = frozenset(
        {"part", "support", "pairs", "context", "summed", "alternates", "accumulates"}
    )

    @property
    def which(self) -> Selection:
        """Return the examples it learns from."""
        return Selection(self.pairs, self.part, self.support, self.context, self.summed)


def picked_here(picks: str) -> str:
    """Return the name of a way to pick that this device knows. Raises `InputError` for any other."""
    if not PICKS[picks].on_device:
        raise InputError(f"picks {picks} needs what no bundle carries; the run should keep its devices from learning")
    return picks


class ReplayRecord(Record):
    """This says how what was learned in earlier blocks is replayed (F3CRec §4.2)."""

    picks: Annotated[str, AfterValidator(picked_here)] = Field(
        description="all of the list; adaptive: as many as the taste is steady"
    )
    list_size: int = Field(ge=1, le=1 << 20, description="items remembered of a block")
    shift_scale: Amount = Field(description="how fast the memory shrinks with the shift")
    weight: Amount = Field(description="weight of replayed examples")
    reduction: Literal["mean", "sum"] = Field(description="replayed examples: mean or sum")


def drawn_here(noise: str) -> str:
    """Return the name of noise that this device can draw. Raises `InputError` for any other."""
    if not law_of(noise).on_device:
        raise InputError(f"{noise} noise is not drawn on a device; the run should let the server add it")
    return noise


class ReleaseRecord(Grown):
    """This says what is done to an update before it leaves, and what is promised of it.

    Where noise is added, by the device or by the server, an update is whole steps of a grid, in 32 bits.
    """

    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        description="largest joint norm; null: not clipped"
    )
    norm: Literal["l1", "l2"] = Field(description="of the whole update, all tensors together")
    noise: Annotated[str, AfterValidator(drawn_here)] | None = Field(
        description="law of the noise: discrete-gaussian, discrete-laplace; null: none"
    )
    scale: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        description="sigma or b of the noise per value, whole steps of the grid"
    )
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="of the grid that updates are rounded to, toward zero: a power of two; null: none"
    )
    noised: Literal["here", "server", "nowhere"] = Field(
        "nowhere", description="who adds the noise: each device to its own update, or the server to their sum"
    )
    weights: Literal["uniform", "size"] = Field(description="size: the number of interactions leaves the device too")
    project: Extent | None = Field(
        None, description="values that the update is projected to before the clip, new in each round; absent: none"
    )

    later: ClassVar[frozenset[str]] = frozenset({"project"})

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if not self.promises:
            if self.noise is not None or self.scale or self.step is not None:
                raise ValueError("it names noise, or a grid, that nobody adds")
            return self
        if self.noise is None or self.step is None or self.clip is None or self.weights != "uniform":
            raise ValueError("noise needs a law, a grid, a clip and uniform weights")
        if math.frexp(self.step)[0] != 0.5 or not 1 <= self.clip / self.step <= LONGEST:
            raise ValueError(f"a clip of {self.clip:g} has no 32-bit whole steps of {self.step:g}")
        steps = self.scale / self.step
        if not (1 <= steps <= LONGEST_SCALE and steps == round(steps)):
            raise ValueError(f"noise of {self.scale:g} has no whole steps of {self.step:g}, up to {LONGEST_SCALE:,}")
        return self

    @property
    def promises(self) -> bool:
        """Say whether anything is promised of a release: somebody adds noise to it, or to its sum."""
        return self.noised != "nowhere"

    @property
    def grid(self) -> float | None:
        """Return the step of the grid on which uploads can be summed as whole numbers; None without a clip."""
        return self.step or (None if self.clip is None else step_for(self.clip))

    @property
    def own_noise(self) -> Noise | None:
        """Return the noise that the device adds itself; None: none."""
        return Noise(self.noise, self.scale, self.step) if self.noised == "here" and self.noise is not None else None


class ExchangeRecord(Grown):
    """This says what a device and the server exchange beside updates, and what the device keeps of a round.

    Over sets a message is about the newest positive in its context (FedCAR Eq. 17), over sessions about the window
    (FCUCR §4).
    """

    publish: Inside | None = Field(description="graph of a message; null: none is sent")
    order: Literal["received", "trained"] | None = Field(
        description="received: sent before training, by the model as received, and trained with the reply to it; "
        "trained: sent with the update, by the trained model; null: nothing is sent"
    )
    reply: Name | None = Field(description="private tensor that holds the server's last reply; null: there is none")
    receiver_noise: Amount = Field(description="standard deviation of noise that the device adds to replies")
    keeps: dict[Name, Name] = Field(description="private tensors set after training to what the named tensors then are")
    marks: list[Name] = Field(description="private tensors set to 1 after training")
    sender_noise: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        0.0, description="scale of the Laplace noise that the device adds to messages"
    )

    later: ClassVar[frozenset[str]] = frozenset({"sender_noise"})


class SessionRecord(ExchangeRecord):
    """This says how a device learns from its session, and what is exchanged of it."""

    gap_s: int = Field(ge=0, lt=1 << 40, description="seconds of a pause after which a new session begins")
    teach: Inside | None = Field(description="graph of the teacher's features, from the tensors before training")
    whole_catalogue: bool = Field(False, description="whether a step reads every row of its tables, in their order")
    once: bool = Field(False, description="whether a round's negatives are drawn once, for all its epochs")

    later: ClassVar[frozenset[str]] = frozenset({"sender_noise", "whole_catalogue", "once"})


class Learning(Grown):
    """`learning` in `config.json`: everything a device needs to do the local work of a round."""

    tensors: list[TensorRecord] = Field(max_length=4096, description="every tensor of the local program")
    phases: list[PhaseRecord] = Field(min_length=1, max_length=64, description="local work in order")
    score: Inside = Field(description="score graph of the tensors that rounds train (no personal layers)")
    vectors: Inside | None = Field(None, description="graph of item vectors, where the device reads texts itself")
    vectors_data: Inside | None = Field(None, description="file of the large tensors of that graph and of `prepared`")
    prepared: dict[Name, Inside] = Field(
        {}, max_length=16, description="graphs of tables that a device makes of others before its steps, by table"
    )
    negatives: int = Field(ge=0, lt=1 << 31, description="sampled negatives per positive")
    batch_size: Extent = Field(description="examples per optimiser step")
    seed: int = Field(ge=0, lt=1 << 63, description="keys the draws of examples")
    round: Round = Field(description="federated rounds behind the bundle's tensors")
    release: ReleaseRecord
    replay: ReplayRecord | None = Field(description="null: nothing is replayed")
    sessions: SessionRecord | None = Field(None, description="null: it learns from a set of items")
    messages: ExchangeRecord | None = Field(None, description="messages beside updates of a set; null: there are none")
    block: int = Field(
        0,
        ge=0,
        lt=1 << 31,
        description="block of time that its rounds are in; a device ends its own before a later one",
    )

    later: ClassVar[frozenset[str]] = frozenset({"messages", "prepared", "block"})

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        check_learning(self)
        return self

    def tensor(self, name: str) -> TensorRecord:
        """Return the record of a tensor; KeyError when there is none."""
        return {tensor.name: tensor for tensor in self.tensors}[name]

    def trained(self, when: str, place: str) -> list[str]:
        """Name the tensors of one place that phases of one kind change, in the program's order."""
        changed = {name for phase in self.phases if phase.when == when for name in (*phase.dense, *phase.tables)}
        return [tensor.name for tensor in self.tensors if tensor.place == place and tensor.name in changed]

    @property
    def exchange(self) -> ExchangeRecord | None:
        """Return what is exchanged beside updates, of sessions or of a set; None: nothing."""
        return self.messages if self.sessions is None else self.sessions

    @property
    def kept(self) -> list[str]:
        """Name the private tensors that last from round to round, in the program's order."""
        how, trained = self.exchange, self.trained("round", "private")
        own = set() if how is None else {*how.keeps, *how.marks, *([] if how.reply is None else [how.reply])}
        return [tensor.name for tensor in self.tensors if tensor.name in {*trained, *own}]

    @property
    def released(self) -> dict[str, int]:
        """Return the numbers of values of the shared tensors that rounds change, in the program's order."""
        return {name: math.prod(self.tensor(name).shape) for name in self.trained("round", "shared")}

    @property
    def leaving(self) -> list[str]:
        """Name all that leaves a device: the tensors of its updates, and the message beside them."""
        told = self.exchange is not None and self.exchange.publish is not None
        return [*self.released, *([PROTOTYPE] if told else [])]

    @property
    def uploaded(self) -> int:
        """Return how many values a device uploads in a round, rows that it did not change included."""
        return self.release.project or sum(self.released.values())


MOST_VALUES = 1 << 30  # of all tensors together


def check_learning(learning: Learning) -> None:
    """Raise ValueError that names what does not agree within the record."""
    kinds = {tensor.name: (tensor.place, tensor.kind) for tensor in learning.tensors}
    if len(kinds) < len(learning.tensors):
        raise ValueError("a tensor is named twice")
    if len({phase.name for phase in learning.phases}) < len(learning.phases):
        raise ValueError("a phase is named twice")
    for tensor in learning.tensors:
        if tensor.kind == "rows" and (len(tensor.shape), tensor.place) != (2, "shared"):
            raise ValueError(f"rows of {tensor.name} are not shared [items, width]")
        if tensor.anew is not None and kinds[tensor.name] != ("private", "dense"):
            raise ValueError(f"{tensor.name} is made anew in every round, which a private dense tensor alone can be")
    if sum(math.prod(tensor.shape) for tensor in learning.tensors) > MOST_VALUES:
        raise ValueError(f"its tensors have more than {MOST_VALUES:,} values")
    for phase in learning.phases:
        _check_phase(phase, kinds)
    _check_draws(learning)
    if learning.vectors_data is not None and learning.vectors is None:
        raise ValueError("vectors_data belongs to no graph")
    for name in learning.prepared:
        if name in kinds or name == "vectors":
            raise ValueError(f"it prepares {name}, which it has already")
    if learning.sessions is not None and learning.messages is not None:
        raise ValueError("it has messages of a set beside those of its sessions")
    if learning.exchange is not None:
        _check_exchange(learning.exchange, learning)


def _check_phase(phase: PhaseRecord, kinds: Mapping[str, tuple[str, str]]) -> None:
    for wanted, names in (("dense", phase.dense), ("rows", phase.tables)):
        for name in names:
            if name not in kinds or kinds[name][1] != wanted:
                raise ValueError(f"phase {phase.name} trains {name}, which is no {wanted} tensor of the program")
    trained = [*phase.dense, *phase.tables]
    if phase.accumulates and (phase.tables or phase.optimiser != "sgd"):
        raise ValueError(f"phase {phase.name} adds up gradients, which is for dense tensors that move by sgd")
    if len(set(trained)) < len(trained):
        raise ValueError(f"phase {phase.name} trains something twice")
    if set(phase.lr) != set(trained):
        odd = min(set(phase.lr) ^ set(trained))
        raise ValueError(f"phase {phase.name} has learning rates of other tensors than it trains: {odd}")


def _check_draws(learning: Learning) -> None:
    for phase in learning.phases:
        if phase.context and not phase.pairs:
            raise ValueError(f"phase {phase.name} asks for a context, which belongs to pairs")
        if phase.which != EVERYTHING and learning.sessions is not None:
            raise ValueError(f"phase {phase.name} asks for pairs or parts of a session, which is one window, whole")
        if phase.pairs and learning.replay is not None:
            raise ValueError(f"phase {phase.name} compares items in pairs, and a replayed item has none")
    turns(learning.phases)


def _check_exchange(how: ExchangeRecord, learning: Learning) -> None:
    private = {t.name: t.shape for t in learning.tensors if t.place == "private"}
    dense = {t.name: t.shape for t in learning.tensors if t.kind == "dense"}
    reply = [] if how.reply is None else [how.reply]
    for name in (*how.keeps, *how.marks, *reply):
        if name not in private:
            raise ValueError(f"rounds keep {name}, which is no private tensor of the program")
    for name, source in how.keeps.items():
        if dense.get(source) != private[name]:
            raise ValueError(f"rounds keep {source} as {name}, which has another shape")
    if (how.publish is None) != (how.order is None) or (how.publish is not None and how.reply is None):
        raise ValueError("messages are published without saying when, or without a place for the reply")
    if learning.sessions is None and how.order == "received":
        raise ValueError("messages of the received model are sent of sessions alone")
    if how.publish is not None and learning.release.promises:
        raise ValueError("a run that promises something of its updates has messages beside them, which bear no noise")
