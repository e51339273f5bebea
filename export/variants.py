"""A device class gets the best variant that its memory, storage, deadline and energy allow.

Best means: with a text encoder before without one, since only then new items can be read; then by measured quality in
steps of 0.01; then by size, the smaller first. A variant that loses more quality than allowed is out for every class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge.manifest import TableType
from privacy.errors import InputError, unknown

if TYPE_CHECKING:
    from export.quality import Quality

SHARE = 0.8  # of the memory an app may use: the rest is for what is not modelled
# what a process grows by over the bare runtime besides its files, where it cannot be measured: measured with small ones
LIBRARIES_MB = 32.0  # what the device code loads, and one call's buffers
ENCODER_MB = 10.0  # tokenizer and one text's activations
WORDS = ("hash", "tfidf", "static", "static+tfidf")  # encoders without a graph


@dataclass(frozen=True)
class GraphCost:
    """This is one call of a graph: operations (multiply-adds count two), bytes of weights read, whether in int8."""

    flops: float
    weights: float
    integer: bool = False


@dataclass(frozen=True)
class ClassLimits:
    """A class allows this, MB (10^6 bytes): memory of an app and of the bare runtime, storage (None: any).

    `seconds` says how long a call takes there (None: not known), `watts` what the device draws meanwhile.
    """

    app_mb: float
    runtime_mb: float
    storage_mb: float | None = None
    seconds: Callable[[GraphCost], float] | None = None
    watts: float | None = None


@dataclass(frozen=True)
class Rules:
    """These rules say what a variant may lose and take.

    Shares of HR@10 and of the top 10; seconds and joules of a recommendation together with the reading of one new text
    (None: any). `variant`: the one that every class gets, whatever it loses there (None: the best).
    """

    max_loss: float = 0.05
    min_overlap: float = 0.8
    deadline_s: float | None = None
    budget_j: float | None = None
    variant: str | None = None


@dataclass(frozen=True)
class Variant:
    """A variant is a type of the cached item vectors, and an encoder: its weights, behind a student's name."""

    table: TableType
    encoder: str | None

    @property
    def name(self) -> str:
        """Return, for example, "f16+encoder-i8", "f16+encoder-2x84-i8" or "i8"."""
        return self.table if self.encoder is None else f"{self.table}+encoder-{self.encoder}"


@dataclass(frozen=True)
class Size:
    """These are bytes of a variant: every file a device keeps, and those of the encoder alone."""

    files: int
    encoder: int


@dataclass(frozen=True)
class Candidate:
    """A candidate is a variant, `works`: its calls (None: not measured), `unfit`: why it cannot be used."""

    variant: Variant
    size: Size
    works: tuple[GraphCost, ...] = ()
    quality: Quality | None = None
    unfit: str | None = None


@dataclass(frozen=True)
class Choice:
    """This is what a class gets. `lacks`: what the class does not have for it, None where it fits."""

    candidate: Candidate
    lacks: str | None


def variants_of(encoders: Sequence[str]) -> list[Variant]:
    """Return every pair worth considering.

    An encoder in fp32 goes with vectors in fp32, smaller ones with fp16, those that take next to nothing (`WORDS`) with
    all; and there are vectors alone.

    >>> [v.name for v in variants_of(["f32", "1x84-i8"])]
    ['f32+encoder-f32', 'f16+encoder-1x84-i8', 'f32', 'f16', 'i8']
    >>> [v.name for v in variants_of(["hash"])]
    ['f32+encoder-hash', 'f16+encoder-hash', 'i8+encoder-hash', 'f32', 'f16', 'i8']
    """
    types: tuple[TableType, ...] = ("f32", "f16", "i8")

    def beside(label: str) -> tuple[TableType, ...]:
        return types if label in WORDS else types[:1] if label.endswith("f32") else types[1:2]

    both = [Variant(table, label) for label in encoders for table in beside(label)]
    return [*both, *(Variant(table, None) for table in types)]


def memory_mb(candidate: Candidate, limits: ClassLimits) -> float:
    """Return the memory that a class needs for a variant, MB: its runtime, libraries, files and one text's reading.

    It is computed of sizes alone, so the same run ships the same files from any host. `SHARE` leaves room for what is
    not in it.
    """
    encoder = ENCODER_MB if candidate.size.encoder else 0.0
    return limits.runtime_mb + LIBRARIES_MB + candidate.size.files / 1e6 + encoder


def latency_s(candidate: Candidate, limits: ClassLimits) -> float | None:
    """Return the seconds of one recommendation, and of reading one text with an encoder; None where nobody knows."""
    return None if limits.seconds is None else sum(map(limits.seconds, candidate.works))


def energy_j(candidate: Candidate, limits: ClassLimits) -> float | None:
    """Return the joules of the same, the whole device's; None where nobody knows."""
    seconds = latency_s(candidate, limits)
    return None if seconds is None or limits.watts is None else seconds * limits.watts


def loss(candidate: Candidate, rules: Rules) -> str | None:
    """Say why the quality rule refuses a variant; None when it does not."""
    quality = candidate.quality
    if candidate.unfit is not None or quality is None:
        return candidate.unfit
    if quality.kept < 1 - rules.max_loss:
        return f"keeps {quality.kept:.3f} of HR@10, less than {1 - rules.max_loss:.3f}"
    if quality.overlap < rules.min_overlap:
        return f"keeps {quality.overlap:.3f} of the top 10, less than {rules.min_overlap:.3f}"
    return None


def excess(candidate: Candidate, limits: ClassLimits, rules: Rules) -> str | None:
    """Say what a class does not have for a variant; None when it has everything."""
    needs = (
        ("MB of memory", memory_mb(candidate, limits), SHARE * limits.app_mb),
        ("MB of storage", candidate.size.files / 1e6, limits.storage_mb),
        ("ms", _thousand(latency_s(candidate, limits)), _thousand(rules.deadline_s)),
        ("mJ", _thousand(energy_j(candidate, limits)), _thousand(rules.budget_j)),
    )
    for unit, need, limit in needs:
        if need is not None and limit is not None and need > limit:
            return f"needs {need:.3g} {unit}, has {limit:.3g}"
    return None


def why_not(candidate: Candidate, limits: ClassLimits, rules: Rules) -> str | None:
    """Say why a class cannot have a variant: by the quality rule, or by what it needs; None where it can."""
    return loss(candidate, rules) or excess(candidate, limits, rules)


class NoBundle(InputError):
    """No variant of a model fits a device class and keeps what it must; what was learned is as it was."""


def choose(candidates: Sequence[Candidate], name: str, limits: ClassLimits, rules: Rules) -> Choice:
    """Choose what class `name` gets. Cached vectors are the floor, given even where they do not fit: the smallest.

    A variant that the rules name is given as it is. Raises `NoBundle`, naming class and figures, when all that fits
    loses too much.

    >>> sizes = {Variant("f16", "i8"): Size(20_000_000, 14_000_000), Variant("i8", None): Size(1_000_000, 0)}
    >>> candidates = [Candidate(variant, size) for variant, size in sizes.items()]
    >>> choose(candidates, "phone", ClassLimits(app_mb=150, runtime_mb=20), Rules()).candidate.variant
    Variant(table='f16', encoder='i8')
    >>> choose(candidates, "watch", ClassLimits(app_mb=80, runtime_mb=20), Rules()).candidate.variant.name
    'i8'
    """
    if rules.variant is not None:
        return _named(candidates, rules.variant, limits, rules)
    ranked = in_order(candidates)
    reasons = [(c, loss(c, rules), excess(c, limits, rules)) for c in ranked]
    for candidate, lost, over in reasons:
        if lost is None and over is None:
            return Choice(candidate, None)
    fitting = [f"{c.variant.name} {lost}" for c, lost, over in reasons if over is None]
    floor = [c for c, lost, _ in reasons if lost is None and c.variant.encoder in (None, *WORDS)]
    if fitting or not floor:
        lossy = "; ".join(fitting or [f"{c.variant.name} {lost}" for c, lost, _ in reasons])
        raise NoBundle(
            f"no bundle for device class {name}: all that fits loses too much ({lossy}); raise "
            "export.max_quality_loss, lower export.min_overlap, or leave the class out of the fleet"
        )
    smallest = min(floor, key=lambda c: c.size.files)
    return Choice(smallest, excess(smallest, limits, rules))


def _named(candidates: Sequence[Candidate], name: str, limits: ClassLimits, rules: Rules) -> Choice:
    """Choose the variant of this name. Raises `InputError` where there is none, and where nothing can use it."""
    found = {candidate.variant.name: candidate for candidate in in_order(candidates)}
    if name not in found:
        raise unknown("variant", name, found)
    if found[name].unfit is not None:
        raise InputError(f"--variant {name}: it {found[name].unfit}; ask for another")
    return Choice(found[name], excess(found[name], limits, rules))


def in_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates with the best first."""
    return sorted(candidates, key=_rank)


def _rank(candidate: Candidate) -> tuple[bool, float, int]:
    if candidate.quality is None:
        return candidate.variant.encoder is None, 0.0, -candidate.size.files
    return candidate.variant.encoder is None, -round(candidate.quality.least, 2), candidate.size.files


def _thousand(value: float | None) -> float | None:
    return None if value is None else 1e3 * value
