"""A run and everything that is served from it are one lineage, with one counter of rounds and one ledger, on disk.

RUN/lineage/rounds.jsonl only grows: a line before a round is offered to any device (`Opened`; of one that waits for
nobody in particular a line before it is offered to each, `Started`), and one when it is over (`Closed`). Every line
carries a digest of all before it, so a file that was changed, or cut in the middle, is refused; a last line without its
end was never acted on and is dropped. RUN/lineage/shared.safetensors are the server's tensors after the last round that
was closed. `private/` remembers how long the lineage was, written after each line and before anybody acts on it, so
that neither all of it can be lost nor its last lines: a file that is shorter is refused.

What no disk can tell by itself is that all of a run's folder was put back to an earlier day: devices, which remember
the rounds they have seen, refuse a server that is behind them.

Owns: the records, their order, what they make of a ledger. Does not own: who opens rounds (`edgefr.serving.ledger`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, TypeAdapter

from edge.records import Grown, Record
from edgefr.simulation.runs.layout import LEDGER
from edgefr.simulation.runs.upload_trust import Collecting
from privacy.errors import InputError
from privacy.files import sha256_of, write_json
from privacy.guarantee import Event
from privacy.ledger import Ledger
from privacy.machine import flush_folder, hold
from privacy.trust import Adjacency

FOLDER, ROUNDS, SHARED, WITNESS = "lineage", "rounds.jsonl", "shared.safetensors", "private/lineage.json"
LOCK = "private/serving.lock"
LOOKED_AT_S = 1.0  # for which a server waits for those that look whether one is at work
CHAIN = len(f',"chain":"{"0" * 64}"}}')

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Number = Annotated[int, Field(ge=0, lt=1 << 31)]


class LedgerTerms(Record):
    """This is what a ledger of the lineage's clients has to know."""

    delta: float = Field(gt=0, lt=1, description="delta of (epsilon, delta)")
    adjacency: Adjacency = Field(description="which two worlds are compared")
    budget: float | None = Field(gt=0, description="epsilon that no client may exceed; null: none")


class Begun(Record):
    """The first line says what the lineage begins with: the run as simulation left it."""

    kind: Literal["begun"] = "begun"
    format: Literal["edgefr.lineage/1"] = "edgefr.lineage/1"
    run: Sha256 = Field(description="sha256 of experiment.yaml")
    model: Sha256 = Field(description="sha256 of the run's own tensors")
    ledger: Sha256 | None = Field(description="sha256 of the run's own ledger.parquet; null: it has none")
    round: Number = Field(description="rounds behind the run's own tensors")
    clients: Number = Field(description="clients of the run")
    terms: LedgerTerms | None = Field(description="what their ledger has to know; null: nothing is guaranteed")


class Opened(Grown):
    """A round is going to be offered to `clients`: from here on all of them are charged, until it is closed."""

    later: ClassVar[frozenset[str]] = frozenset({"sealed", "trusted", "buffered", "block"})

    kind: Literal["opened"] = "opened"
    round: Number
    bundle: Sha256 = Field(description="whose devices they are")
    event: Event | None = Field(description="what each of them releases; null: nothing is guaranteed")
    clients: list[Number] = Field(description="who is asked")
    refused: list[Number] = Field(description="who was drawn, but may not release once more")
    sealed: bool = Field(False, description="uploads are summed under masks, so that the server sees their total alone")
    trusted: str | None = Field(None, description="name of whom clients trust with single uploads; null: of nobody")
    buffered: bool = Field(False, description="it is open to any client: those asked follow in `Started`")
    block: Number = Field(0, description="block of time that it is in; 0: the first, or the run has none")


class Started(Record):
    """These clients too are going to be offered the open round, which waits for nobody in particular."""

    kind: Literal["started"] = "started"
    round: Number
    clients: list[Number] = Field(min_length=1, description="who asked for work, and is given it")


class Closed(Grown):
    """A round is over: `clients` are those it charges."""

    later: ClassVar[frozenset[str]] = frozenset({"summed"})

    kind: Literal["closed"] = "closed"
    round: Number
    clients: list[Number] = Field(description="who took up work; all that were asked where nobody can tell any more")
    tensors: Sha256 | None = Field(description="sha256 of shared.safetensors after it; null: the run's own tensors")
    burnt: bool = Field(
        description="its server was killed, and it was sealed, or the next had another bundle's devices or other noise"
    )
    summed: list[tuple[Number, Number]] = Field(
        [], description="of a buffered round: whose uploads are in its sum, each with the round it started in"
    )


Line = Begun | Opened | Started | Closed
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def sealed(record: Line, before: str) -> tuple[bytes, str]:
    """Return a record as its line, and the digest of everything up to it; `before` is that of the line before it."""
    body = record.model_dump_json()
    digest = hashlib.sha256(f"{before}{body}".encode()).hexdigest()
    return f'{body[:-1]},"chain":"{digest}"}}\n'.encode(), digest


@dataclass
class Lineage:
    """These are the lines of a lineage, checked; `heads` are the digests after each of them, `size` their bytes.

    `rounds` are those that were opened, with all that were asked, and the line that closed each (None: it is open).
    """

    lines: list[Line] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    size: int = 0
    rounds: list[tuple[Opened, Closed | None]] = field(default_factory=list)

    @classmethod
    def of(cls, run: Path) -> Lineage:
        """Read that of a run's folder; without lines where nothing was served.

        Raises `InputError` for one that was changed, cut, lost, or is of another run.
        """
        path, found = run / FOLDER / ROUNDS, cls()
        witnesses = _witnesses(run)  # before the lines: a server that is at work adds to these first
        try:
            content = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
        whole = content[: content.rfind(b"\n") + 1]  # what follows was being written when the server was killed
        for number, line in enumerate(whole.splitlines(keepends=True), 1):
            try:
                found.add(line)
            except ValueError as error:
                reason = " ".join(str(error).split())[:120]
                raise InputError(f"{path} was changed or damaged at line {number} ({reason}); put it back") from error
        for told in witnesses:
            if told not in found.heads:
                raise InputError(
                    f"{path} is not the one of this run's served rounds, or not all of it; put it back (more was "
                    "released than it tells)"
                )
        if found.begun is not None:
            for name, was in (("experiment.yaml", found.begun.run), (LEDGER, found.begun.ledger)):
                if was != digest_of(run / name):
                    raise InputError(
                        f"{run / name} is not the one that {path} goes on from: its rounds are of another run, or it "
                        "was changed; put it back"
                    )
        return found

    def last_asked(self, before: int) -> dict[int, int]:
        """Return in which round before this one each client was asked last, of those that were."""
        return {client: opened.round for opened, _ in self.rounds if opened.round < before for client in opened.clients}

    def add(self, line: bytes) -> None:
        """Take one more whole line. Raises `ValueError` for one that does not follow."""
        record = _LINE.validate_json(line[: -CHAIN - 1] + b"}")
        again, digest = sealed(record, self.head)
        if again != line:
            raise ValueError("its digest does not follow from the lines before")
        self._check(record)
        self._note(record)
        self.lines.append(record)
        self.heads.append(digest)
        self.size += len(line)

    def _note(self, record: Line) -> None:
        """Add a line to the rounds."""
        if isinstance(record, Opened):
            self.rounds.append((record, None))
        elif isinstance(record, Started):
            opened = self.rounds[-1][0]
            self.rounds[-1] = opened.model_copy(update={"clients": [*opened.clients, *record.clients]}), None
        elif isinstance(record, Closed):
            self.rounds[-1] = self.rounds[-1][0], record

    def _check(self, record: Line) -> None:
        """A lineage begins once; rounds are opened one after the other, and each is closed before the next."""
        if isinstance(record, Begun) != (not self.lines):
            raise ValueError("a lineage begins with its first line")
        if isinstance(record, Opened) and (self.open is not None or record.round != self.round + 1):
            raise ValueError(f"round {record.round} cannot be opened after round {self.round}")
        if isinstance(record, Opened) and record.block < self.block:
            raise ValueError(f"block {record.block} is over, and block {self.block} was open")
        if isinstance(record, Started):
            asked = None if self.open is None else self.open.clients
            if self.open is None or not self.open.buffered or record.round != self.open.round:
                raise ValueError(f"nobody can start in round {record.round}")
            if len({*record.clients, *(asked or ())}) < len(record.clients) + len(asked or ()):
                raise ValueError(f"a client starts twice in round {record.round}")
        if isinstance(record, Closed):
            if self.open is None or record.round != self.open.round:
                raise ValueError(f"round {record.round} is not open")
            if not set(record.clients) <= set(self.open.clients):
                raise ValueError(f"round {record.round} charges clients it did not ask")

    @property
    def head(self) -> str:
        """Return the digest of all lines."""
        return self.heads[-1] if self.heads else ""

    @property
    def begun(self) -> Begun | None:
        """Return the first line; None where nothing was served."""
        first = self.lines[0] if self.lines else None
        return first if isinstance(first, Begun) else None

    @property
    def open(self) -> Opened | None:
        """Return the round that lies open; None where there is none."""
        opened, closed = self.rounds[-1] if self.rounds else (None, None)
        return opened if closed is None else None

    @property
    def round(self) -> int:
        """Return the number of the last round that was opened, or of the run's own last."""
        return self.lines[-1].round if self.lines else 0

    @property
    def block(self) -> int:
        """Return the block of time of the last round that was opened; 0 where there was none."""
        return self.rounds[-1][0].block if self.rounds else 0

    @property
    def over(self) -> int:
        """Return the number of the last round that is over, or of the run's own last."""
        return self.round - (self.open is not None)

    @property
    def tensors(self) -> str | None:
        """Return the sha256 of the tensors after the last round that was closed; None: they are the run's own."""
        return next((line.tensors for line in reversed(self.lines) if isinstance(line, Closed)), None)

    @property
    def seen(self) -> int:
        """Count the rounds whose uploads a server saw that was not named as trusted with them."""
        return sum(not opened.sealed and opened.trusted is None for opened, _ in self.rounds)

    @property
    def collected(self) -> dict[str, int]:
        """Count the rounds by how their uploads reached the server."""
        return dict(Counter(Collecting(opened.sealed, opened.trusted).said for opened, _ in self.rounds))

    def ledger(self) -> Ledger | None:
        """Return what was released to the served rounds alone; None where nothing is guaranteed."""
        if self.begun is None or self.begun.terms is None:
            return None
        terms, clients = self.begun.terms, self.begun.clients
        budget = math.inf if terms.budget is None else terms.budget
        ledger = Ledger(clients, delta=terms.delta, adjacency=terms.adjacency, budget=budget)
        self.charge(ledger)
        return ledger

    def charge(self, ledger: Ledger, open_too: bool = True) -> None:
        """Charge a ledger for every served round; for one that is open, unless it is going on, whoever was asked."""
        for opened, closed in self.rounds:
            if opened.event is not None and (open_too or closed is not None):
                ledger.refuse(_numbers(opened.refused), opened.event)
                ledger.spend(_numbers((closed or opened).clients), opened.event)

    def record(self) -> dict[str, int | str]:
        """Return what a summary says of it: rounds by what became of them, and the digest that names this state."""
        closed = [end for _, end in self.rounds if end is not None]
        burnt = sum(end.burnt for end in closed)
        counts = {"round": self.round, "opened": len(self.rounds), "burnt": burnt}
        return {**counts, "head": self.head}


class Journal:
    """This is the file of a lineage while its run is being served: by one process, which holds its lock.

    `heard` is told every line that was put on the disk.

    >>> with Journal.locked(run.path) as journal:  # doctest: +SKIP
    ...     journal.append(Opened(round=journal.lineage.round + 1, ...))
    """

    def __init__(self, run: Path, lineage: Lineage):
        self.run, self.lineage = run, lineage
        self.heard: Callable[[Line], object] = lambda line: None

    @classmethod
    @contextmanager
    def locked(cls, run: Path) -> Iterator[Journal]:
        """Keep other processes from serving a run while inside. Raises `InputError` where one does, and as `of`."""
        with _alone(run):
            journal = cls(run, Lineage.of(run))
            if journal.lineage.lines:  # a kill may have come after the last of them, and before it was remembered
                journal._remember()
            yield journal

    @property
    def path(self) -> Path:
        """Return where the lines are."""
        return self.run / FOLDER / ROUNDS

    def append(self, record: Line) -> None:
        """Put one more line on the disk; when this returns it is there for good. Raises `InputError` if it cannot."""
        line, _ = sealed(record, self.lineage.head)
        try:
            self.path.parent.mkdir(mode=0o755, exist_ok=True)
            with open(self.path, "ab", buffering=0, opener=partial(os.open, mode=0o644)) as file:
                if file.tell() < self.lineage.size:
                    raise InputError(f"{self.path} was cut while its run is being served; put it back")
                file.truncate(self.lineage.size)  # what a kill left of a line
                left = line
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            with suppress(OSError):  # not every file system can
                flush_folder(self.path.parent)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror or error}; fix that first") from error
        self.lineage.add(line)
        self._remember()
        self.heard(record)

    def _remember(self) -> None:
        """Have `private/` know how long the lineage is. Raises `InputError` if it cannot."""
        (self.run / WITNESS).parent.mkdir(mode=0o700, exist_ok=True)
        told = {"head": self.lineage.head, "round": self.lineage.round}
        write_json(self.run / WITNESS, told, mode=0o600)


def digest_of(path: Path) -> str | None:
    """Return the sha256 of a file; None where there is none."""
    return sha256_of(path) if path.exists() else None


def _witnesses(run: Path) -> list[str]:
    """Return the digests that the lineage is known to have had: by `private/`, and by every result of serving."""
    found = []
    places = ((run / WITNESS, ()), *((path, ("lineage",)) for path in sorted(run.glob("served*/summary.json"))))
    for path, keys in places:
        try:
            value = json.loads(path.read_bytes())
            for key in (*keys, "head"):
                value = value[key]
            found.append(str(value))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InputError(f"{path} does not say how long the lineage was ({error}); put it back") from error
    return found


def _numbers(clients: Sequence[int]) -> np.ndarray:
    return np.array(clients, np.int64)


@contextmanager
def _alone(run: Path) -> Iterator[None]:
    """Hold a run against other processes while the block does."""
    try:
        (run / LOCK).parent.mkdir(mode=0o700, exist_ok=True)
        handle = hold(run / LOCK, LOOKED_AT_S)
    except BlockingIOError as error:
        raise InputError(f"{run} is being served by another process; wait for it (nothing was changed)") from error
    except OSError as error:
        raise InputError(f"cannot write {run / LOCK}: {error.strerror or error}") from error
    try:
        yield
    finally:
        os.close(handle)
