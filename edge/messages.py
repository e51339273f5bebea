"""These are the messages between a device and its server that are JSON, and the facts in a release's header."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from edge.records import MOST_ROUNDS, Record

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Number = Annotated[int, Field(strict=True, ge=0, le=MOST_ROUNDS)]


class Code(Record):
    """This is the body of a request that enrols: the secret of a one-time code."""

    code: str = Field(pattern="^[0-9a-f]{32}$", description="what stands before the dot of a one-time code")


class Known(Record):
    """The answer to it says whom the key of the request stands for from now on."""

    user: str = Field(description="name that the server knows the device by")


class SealedFacts(Record):
    """The facts of a release of which something is promised are the same for every device of a round."""

    schema_: Literal["edgefr.release/2"] = Field(alias="schema", description="format of the release")
    bundle: Digest = Field(description="id of the device's bundle")
    round: Number = Field(description="round that it is a release of")


class OpenFacts(SealedFacts):
    """The facts of a release of which nothing is promised say more."""

    examples: Number | None = Field(description="the client's interactions, where the server weighs by them; else null")
    dropped: Annotated[bool, Field(strict=True)] = Field(description="training had diverged, and nothing is in it")
    tables: list[str] = Field(description="tables of which it changes rows")


ReleaseFacts = SealedFacts | OpenFacts
RELEASE_FACTS: TypeAdapter[ReleaseFacts] = TypeAdapter(ReleaseFacts)
