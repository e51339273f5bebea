"""The battery checks all promises of a program in order, since an early failure often causes later ones.

Owns: the list of checks, their words, and the report. Does not own: how a check is made (`checks`, `bundle_checks`).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass

from edgefr.methods.testing import bundle_checks as shipped
from edgefr.methods.testing import checks
from edgefr.methods.testing.cases import Case, case_of
from export.program import LocalProgram
from privacy.errors import InputError, unknown


@dataclass(frozen=True)
class Promise:
    """A promise has a name, what it says, how a program that breaks it is mended, and the check that asks for it."""

    name: str
    says: str
    mend: str
    ask: Callable[[Case], str | None]


@dataclass(frozen=True)
class Result:
    """A check has passed, or failed, or was not made (`passed` is None); `reason` says why it did not pass."""

    name: str
    says: str
    passed: bool | None
    reason: str = ""

    def __str__(self) -> str:
        mark = {True: "kept", False: "BROKEN", None: "not asked"}[self.passed]
        return f"{mark:9}  {self.says}" + (f": {self.reason}" if self.reason else "")


class Broken(AssertionError):
    """This says which promise a program breaks first, how to mend it, and what became of every check (`results`)."""

    def __init__(self, message: str, results: list[Result]):
        super().__init__(message)
        self.results = results


PROMISES = (
    Promise(
        "specs",
        "specs and phases are whole",
        "make specs, first values and phases name the same",
        checks.specs_and_phases,
    ),
    Promise(
        "numbers",
        "a round runs, and everything stays a number",
        "a loss reads only what its phase's `uses` name; what it trains has to matter to it",
        checks.numbers,
    ),
    Promise(
        "same bytes",
        "the same seed gives the same bytes",
        "draw with privacy.keyed by seed, name and client; keep nothing between calls",
        checks.same_bytes,
    ),
    Promise(
        "left alone",
        "what is given, and clients who are not in the shard, stay as they are",
        "make new tensors instead of changing given ones, and keep nothing between calls",
        checks.left_alone,
    ),
    Promise(
        "padding",
        "padding changes nothing",
        "take means with batch.mean, batch.weight or batch.pairs.mean, which leave padding out",
        checks.padding,
    ),
    Promise(
        "clients apart",
        "a client learns the same whatever others' data are",
        "work on the last dimensions alone: the ones before them are clients",
        checks.clients_apart,
    ),
    Promise("order", "the order of clients changes nothing", "do not count on a client's place", checks.order),
    Promise(
        "shards",
        "shards of any size give the same",
        "sum over clients, never divide by how many there are",
        checks.shards,
    ),
    Promise(
        "loop",
        "a shard at once equals a plain loop over its clients",
        "use batch.rows, batch.own, batch.dense and export.batches.inner, which know every layout",
        checks.loop,
    ),
    Promise("idle", "a client without data stays as it is", "take nothing from a batch that is empty", checks.idle),
    Promise(
        "workers",
        "worker processes can have it",
        "define it in a module that can be imported, without lambdas or open files in it",
        checks.workers,
    ),
    Promise(
        "bundle",
        "a bundle can be made of it, whose steps train and whose scores are as in torch",
        "use torch operations that ONNX has, no Python that depends on values or sizes",
        shipped.bundle,
    ),
    Promise("device", "a device learns what the simulator does", "see the check before", shipped.device),
)
CHECKS = tuple(promise.name for promise in PROMISES)
"""Names of the checks, in the order in which they are made."""

NEEDED = ("specs", "numbers")
"""Nothing can be asked of a program that fails one of these."""


def check_method(program: LocalProgram, skip: Collection[str] = ()) -> list[Result]:
    """Hold a program to what every method promises; return what became of every check.

    `skip`: names of checks that are not made (`CHECKS`). Raises `Broken`, an `AssertionError` that names the promise,
    where it differs and how to mend it; `InputError` for a catalogue under 12 items and for names that are no checks.

    >>> from edgefr.methods.fedmf.program import FedMF
    >>> from edgefr.methods.fedmf.settings import FedMFSettings
    >>> found = check_method(FedMF(FedMFSettings(dim=4), 20, 1), skip=["workers", "bundle", "device"])
    >>> sum(result.passed is True for result in found)
    10
    """
    results = examine(program, skip)
    broken = [result for result in results if result.passed is False]
    if not broken:
        return results
    first = next(promise for promise in PROMISES if promise.name == broken[0].name)
    lines = [
        f"{program.name} breaks a promise of local programs, '{first.name}': {first.says}",
        f"  found: {broken[0].reason}",
        f"  mend:  {first.mend}",
    ]
    also = [result.name for result in broken[1:]]
    lines += [f"  also broken, maybe by this: {', '.join(also)}"] if also else []
    raise Broken("\n".join(lines), results)


def examine(program: LocalProgram, skip: Collection[str] = ()) -> list[Result]:
    """Make every check, whatever others find; raises `InputError` as `check_method` does."""
    for name in set(skip) - set(CHECKS):
        raise unknown("check", name, CHECKS)
    case, results, stopped = case_of(program), [], ""
    for promise in PROMISES:
        if promise.name in skip or stopped:
            results.append(Result(promise.name, promise.says, None, stopped or "skipped"))
            continue
        results.append(_asked(promise, case))
        if promise.name in NEEDED and results[-1].passed is False:
            stopped = f"'{promise.name}' has to be kept first"
    return results


def _asked(promise: Promise, case: Case) -> Result:
    """Make one check; whatever it raises is its finding."""
    passed: bool | None = False
    try:
        reason = promise.ask(case)
        passed = True if reason is None else None
    except (AssertionError, InputError) as error:
        reason = str(error)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        words = " ".join(str(error).split())[:300]
        reason = f"{type(error).__name__}: {words} ({frame.filename}:{frame.lineno})"
    return Result(promise.name, promise.says, passed, reason or "")
