"""A bundle says this of itself: `manifest.json` (its files) and `config.json` (how to score and encode)."""

import hashlib
import json
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, JsonValue, Tag, model_validator

from edge.learning import Learning
from edge.records import MANIFEST as MANIFEST  # the names that no listed file may have
from edge.records import SIGNATURE as SIGNATURE
from edge.records import Grown, Inside, Moment, Plain, Record, Whole

SCHEMA: Literal["edgefr.bundle/3"] = "edgefr.bundle/3"
MOST_FILES = 256
"""Files of a bundle, at most; those that are made have some 20."""
LASTS_DAYS = 365
"""Days after a run was made, from which devices refuse its bundles, unless who exports them says otherwise."""

Role = (
    Literal["config", "card", "tokenizer", "score", "encoder", "words"]
    | Literal["table", "scale", "ids", "shared", "private", "step"]
)
TableType = Literal["i8", "f16", "f32", "i32"]
StartBasis = Literal["popular", "mean"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class File(Record):
    path: Inside = Field(description="name relative to the bundle, with forward slashes")
    size: Whole = Field(description="bytes")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="digest of the file's bytes")
    role: Role = Field(description="what the file is for")


class Onnx(Record):
    opset: int = Field(ge=1, lt=1 << 31, description="version of the standard operators the graphs use")
    ir: int = Field(ge=1, lt=1 << 31, description="version of the ONNX file format")
    min_ort: str = Field(pattern=r"^\d{1,4}(\.\d{1,4}){1,2}$", description="oldest onnxruntime that loads them")


class Sizes(Record):
    shared_parameters: Whole = Field(description="values of the shared dense tensors (adapter)")
    private_parameters: Whole = Field(description="values of one client's private tensors")
    encoder_parameters: Whole = Field(description="values of the text encoder, 0 without one")
    users: Whole = Field(description="simulated users whose private state is in the bundle; 0 unless asked for")
    memory_mb: float = Field(
        ge=0, allow_inf_nan=False, description="estimated memory of a process that holds all of it, MB"
    )


class Promise(Record):
    """This is what a run promises of each client's data, which a device compares with its own policy.

    It is a claim of whoever signed the bundle: a device works out for itself what its releases cost.
    """

    trust: Literal["local", "central"] = Field(description="local: noise on each device; central: once, on the sum")
    mechanism: Annotated[Plain, Field(max_length=100)] = Field(description="whose noise it is, by its name")
    adjacency: Literal["replace-one", "zero-out"] = Field(
        description="replace-one: other data in place of a client's; zero-out: zeros in place of its update"
    )
    norm: Literal["l1", "l2"] = Field(description="norm in which updates are clipped")
    clip: Positive = Field(description="longest update of one client in one round, in that norm")
    multiplier: Positive = Field(description="scale of the noise over the sensitivity of one release")
    steps: int = Field(ge=0, lt=1 << 63, description="that sensitivity in steps of the grid; 0: nobody asks")
    epsilon: Positive = Field(description="of a client that takes part in all rounds")
    delta: float = Field(gt=0, lt=1, description="delta of (epsilon, delta)")
    rounds: int = Field(ge=1, lt=1 << 31, description="rounds that epsilon counts")
    cohort: int = Field(ge=1, lt=1 << 63, description="least number of clients whose sum is opened; 1 if each is seen")


class Manifest(Record):
    """This is `manifest.json`. `bundle_id` is the digest of everything else in it, so one id names one content."""

    schema_: Literal["edgefr.bundle/3"] = Field(alias="schema", description="format of this file")
    bundle_id: str = Field(pattern="^[0-9a-f]{64}$", description="sha256 of this manifest with an empty bundle_id")
    serial: Whole = Field(description="grows with every release: created, in seconds since 1970")
    created: Plain = Field(description="when the run was made, ISO 8601")
    expires: Moment | None = Field(default=None, description="refused from then on, ISO 8601 with offset; null: never")
    method: Plain = Field(description="name of the local program")
    device_class: Plain = Field(description="device class the bundle was packed for")
    variant: Plain = Field(description="what the class's memory allows: item-vector type and encoder type")
    onnx: Onnx
    model: Sizes
    privacy: Promise | None = Field(description="what is promised of each client's data; null: nothing")
    item_count: int = Field(ge=1, lt=1 << 31, description="items of the catalogue")
    ids_file: Inside = Field(description="file with the items' ids and titles")
    provenance: dict[str, JsonValue] = Field(description="where it comes from: run, data, protocol, privacy, ...")
    files: list[File] = Field(
        max_length=MOST_FILES, description="every file of the bundle but this one and its signature"
    )

    def expired(self, now: datetime) -> bool:
        """Say whether `expires` has come; a `now` without an offset is in UTC."""
        aware = now if now.tzinfo else now.replace(tzinfo=UTC)
        return self.expires is not None and datetime.fromisoformat(self.expires) <= aware


class Table(Record):
    name: Annotated[Plain, Field(min_length=1, max_length=128)] = Field(description="name of the program's table")
    dtype: TableType = Field(description="i8: times one scale per row; f16, f32: plain; i32: token numbers")
    width: int = Field(ge=1, lt=1 << 31, description="values per item")
    path: Inside
    scale: Inside | None = Field(description="one float32 per row, for i8")


class Encoder(Record):
    path: Inside
    data: Inside | None = Field(description="the graph's large tensors, in the same folder; null: all in the graph")
    tokenizer: Inside
    dtype: Literal["f32", "f16", "i8", "i4"] = Field(description="type of the encoder's weights")
    layers: int = Field(ge=1, lt=1 << 31, description="Transformer layers")
    hidden: int = Field(ge=1, lt=1 << 20, description="width of the Transformer")
    vocabulary: int = Field(ge=1, lt=1 << 31, description="pieces that it knows")
    width: int = Field(ge=1, lt=1 << 20, description="values of a text vector")
    pooling: str = Field(min_length=1, max_length=100, description="how token vectors become one; part of the graph")
    max_tokens: int = Field(ge=3, lt=1 << 20, description="longer texts are cut to so many tokens")

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(path for path in (self.path, self.data, self.tokenizer) if path)


class LearnedWords(Grown):
    count: int = Field(ge=1, le=1 << 20, description="words that it knows")
    numbers: Inside = Field(description="their numbers, int64 in ascending order")
    weights: Inside = Field(description="one row of float16 per word, or of int8 where there is a scale")
    scale: Inside | None = Field(None, description="of int8: one float32 for each part of a word's row")
    parts: int = Field(1, ge=1, le=16, description="equal parts of a row; a text's vector has each at the same length")

    later: ClassVar[frozenset[str]] = frozenset({"scale", "parts"})


class Words(Record):
    """This is an encoder without a graph: a text's words are hashed, or looked up in a table (`edge.word_vectors`)."""

    words: Literal["words/1"] = Field(description="what a word is, and its number")
    width: int = Field(ge=1, le=1 << 16, description="values of a text vector")
    pairs: bool = Field(description="whether two neighbours are a word too")
    table: LearnedWords | None = Field(description="what was learned of words; null: they are hashed with signs")

    @property
    def files(self) -> tuple[str, ...]:
        table = self.table
        return () if table is None else tuple(filter(None, (table.numbers, table.weights, table.scale)))

    @model_validator(mode="after")
    def _parts_are_whole(self) -> Self:
        if self.table is not None and (
            self.width % self.table.parts or (self.table.parts > 1 and not self.table.scale)
        ):
            raise ValueError("its words have parts that are not equal, or no scale of each")
        return self


class Start(Record):
    """This is what somebody without history is shown: items, best first, and what their order is made of."""

    path: Inside = Field(description="their numbers, int32")
    count: int = Field(ge=1, le=1000, description="how many they are")
    basis: StartBasis = Field(description="popular: how many people had them; mean: the model, for a new user")


def _form(value: Any) -> str:
    return "words" if isinstance(value, Words) or (isinstance(value, dict) and "words" in value) else "graph"


AnyEncoder = Annotated[Annotated[Encoder, Tag("graph")] | Annotated[Words, Tag("words")], Discriminator(_form)]


class Config(Grown):
    """`config.json` says which file plays which part in scoring and encoding."""

    score: Inside = Field(description="ONNX graph of one client's scores")
    tables: list[Table] = Field(max_length=1000, description="per-item tables the score graph reads")
    history: bool = Field(description="whether scoring reads the client's own past positives")
    window: int | None = Field(
        None, ge=1, le=1024, description="newest items of the client's session that scoring reads in order; null: a set"
    )
    last: int | None = Field(
        None, ge=1, le=1024, description="newest of the client's own items that scoring reads in order; null: no order"
    )
    explain: Inside | None = Field(None, description="ONNX graph of what candidates lean on; null: there is none")
    shared: Inside = Field(description="shared dense tensors, safetensors")
    users: Inside | None = Field(None, description="ids of the simulated users; null: the bundle carries nobody")
    private: Inside | None = Field(None, description="their private tensors, history and seen items")
    init: Inside = Field(description="private tensors a new device starts from")
    encoder: AnyEncoder | None = Field(description="text encoder; null in bundles of cached vectors only")
    learning: Learning | None = Field(None, description="what a device needs to learn; null: it only recommends")
    start: Start | None = Field(None, description="items for somebody without history; null: there is no order of them")
    encoder_in: list[str] = Field(description="device classes of the same export whose bundle has an encoder")

    later: ClassVar[frozenset[str]] = frozenset({"last", "explain", "start"})

    @model_validator(mode="after")
    def _users_are_whole(self) -> Self:
        if (self.users is None) != (self.private is None):
            raise ValueError("it has users' ids and no state of theirs, or the other way round")
        return self

    @model_validator(mode="after")
    def _sessions_have_windows(self) -> Self:
        if self.learning is not None and self.learning.sessions is not None and self.window is None:
            raise ValueError("it learns from sessions, but reads no window of them")
        return self


def canonical(manifest: Manifest) -> bytes:
    """The only bytes `manifest.json` may have: indented JSON in the fields' order."""
    record = manifest.model_dump(mode="json", by_alias=True)
    return (json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def identify(manifest: Manifest) -> str:
    """Return the hex sha256 of the manifest with an empty `bundle_id`: what `bundle_id` must be."""
    return hashlib.sha256(canonical(manifest.model_copy(update={"bundle_id": ""}))).hexdigest()
