"""A device decides for itself: its policy says what may leave it, whoever made the bundle.

    policy.yaml, beside the device's state; every key may be left out:
        epsilon: 4
        least_noise: 0.5

What a policy can promise: clip and noise are applied by the device's own code after a bundle's graphs have run, so
whatever a hostile publisher's graph carries into an update is bounded by them, and by the limits here. What it cannot:
under `trust: central` the noise is added elsewhere, and with `unprotected` nothing is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from edge.learning import PROTOTYPE, ReleaseRecord
from edge.limited_process import MOST
from edge.manifest import Promise
from edge.manifest_check import reason
from edge.verified_files import short
from privacy.errors import InputError, unknown
from privacy.guarantee import Event

NAME = "policy.yaml"
MOST_BYTES = 1 << 16
DEEPEST = 8
NEAR = 1 + 1e-9
"""Numbers that two programs computed from the same settings may differ by this factor."""
REACH = {"replace-one": 2.0, "zero-out": 1.0}
"""How far one client can move what is noised, in clips."""
NOISED = {"local": "here", "central": "server"}
NEVER = "do not use it, and tell who made it"
"""What is done about a bundle that breaks its promise, whatever a policy allows."""
MOST_NAMES = 8


class Refusal(NamedTuple):
    """This is one reason why updates may not leave: `what`, and the key and value that allow it, or what else helps."""

    what: str
    instead: str = ""
    remedy: str = ""


class Policy(BaseModel):
    """This is what a device's owner lets it release. The defaults are strict: local noise, signed bundles, epsilon 10.

    >>> Policy(epsilon=4.0).trust
    'local'
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    trust: Literal["local", "central"] = Field(
        "local",
        description="local: the device adds the noise itself; central: also lets updates go without, to a server whose "
        "signed bundle promises to add it to the sum",
    )
    unprotected: bool = Field(
        False,
        description="true: updates may leave without a guarantee, also without noise and without a clip; a "
        "clip that they have, and all keys that are not about noise, hold for them too",
    )
    epsilon: float = Field(10.0, gt=0, description="of all releases in the device's lifetime, by its own ledger")
    delta: float = Field(1e-5, gt=0, lt=1, description="delta of that epsilon")
    least_noise: float = Field(
        0.1,
        gt=0,
        description="scale of the noise over the sensitivity of one release, at least; 0.1 of Laplace noise costs "
        "epsilon 10 in one release, and as much of Gaussian noise more",
    )
    largest_clip: float = Field(100.0, gt=0, description="longest clip of updates that leave, in the bundle's norm")
    releases_per_day: int = Field(
        100, ge=0, lt=1 << 31, description="releases in any 24 hours by the device's clock, at most"
    )
    least_cohort: int = Field(
        10,
        ge=1,
        lt=1 << 63,
        description="clients whose sum is opened, at least, but under local trust, where the device's own noise hides "
        "its update in any sum; in a secure sum so many, itself among them, must be seen by the device, whose "
        "neighbours are a part of a cohort of more than 100",
    )
    sealed: bool = Field(
        False,
        description="true: updates leave under the masks of a secure sum alone, of which a server learns the total",
    )
    signed: bool = Field(True, description="true: only bundles that a trusted key has signed")
    tensors: tuple[str, ...] | None = Field(
        None, strict=False, description="shared tensors that may leave; left out: those that the bundle names"
    )

    max_ram_mb: float | None = Field(
        None,
        gt=0,
        le=MOST,
        description="resident memory of the device's commands, MB, at most (as `--max-ram-mb`); left out: any",
    )
    max_seconds: float | None = Field(
        None,
        gt=0,
        le=MOST,
        description="seconds that a command, or a round of one that joins, works with a bundle, at most (as "
        "`--max-seconds`); left out: any",
    )

    _file: Path | None = PrivateAttr(None)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a policy file. Raises `InputError` in one line for one that is missing or is not a policy."""
        path = Path(path)
        found = {key: value for key, value in _mapping(path).items() if value not in ("", "~", "null")}
        for key in found:
            if key not in cls.model_fields:
                raise InputError(f"{path}: {unknown('key', key, cls.model_fields)}")
        try:
            return cls.model_validate(found, strict=False)  # all of it is text, which is read as what the key holds
        except ValidationError as error:
            raise InputError(f"{path}: {reason(error)}") from None

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return the policy in the folder of a device's state; the defaults where there is none."""
        path = folder / NAME
        found = cls.read(path) if path.exists() else cls()
        found._file = path
        return found

    @property
    def where(self) -> str:
        """Return where a device's owner changes this policy, for the end of a line; nothing where it has no file."""
        return "" if self._file is None else f" in {self._file} (or a file that --policy gives)"

    def refuses(
        self, release: ReleaseRecord, promise: Promise | None, signed_by: str | None, released: Collection[str]
    ) -> str | None:
        """Return all reasons, in one line, why a bundle's updates may not leave; None: they may.

        `release` and `promise`: of the bundle. `signed_by`: the trusted key that signed it. `released`: names of all
        that its updates hold. Of a bundle that breaks its promise the line says that alone: no key allows it.
        """
        found = list(self._reasons(release, promise, signed_by, released))
        found = [one for one in found if one.remedy == NEVER] or found
        keys = ", ".join(one.instead for one in found if one.instead)
        allow = [f"get another bundle, or allow it with {keys}{self.where}"] if keys else []
        helps = dict.fromkeys([*(one.remedy for one in found if one.remedy), *allow])
        return "; ".join([*(one.what for one in found), *helps]) or None

    def needs(
        self, release: ReleaseRecord, promise: Promise | None, signed_by: str | None, released: Collection[str]
    ) -> list[str]:
        """Return the keys, each with the value, that would let a bundle's updates leave, as `refuses` names them."""
        return [one.instead for one in self._reasons(release, promise, signed_by, released) if one.instead]

    def refuses_in_the_clear(self) -> str | None:
        """Return why no update may leave without masks, in one line; None: it may."""
        if not self.sealed:
            return None
        seen = "policy sealed: the server would see the update itself"
        return f"{seen}; join one that sums them under masks, or allow it with sealed: false{self.where}"

    def _reasons(
        self, release: ReleaseRecord, promise: Promise | None, signed_by: str | None, released: Collection[str]
    ) -> Iterator[Refusal]:
        if self.signed and signed_by is None:
            yield _refused("signed", "no key that this device trusts has signed the bundle", "signed: false")
        others = sorted(set(released) - set(released if self.tensors is None else self.tensors))
        if others:
            names = ", ".join(others[:MOST_NAMES]) + (", ..." if len(others) > MOST_NAMES else "")
            yield _refused("tensors", f"{others[0]} would leave the device", f"tensors with {names} in it")
        if promise is not None:
            beside = ["a prototype of the session leaves beside the update"] if PROTOTYPE in released else []
            for fault in (*_broken(release, promise), *beside):
                yield Refusal(f"the bundle promises more than it does: {fault}", remedy=NEVER)
            if promise.trust == "central" and signed_by is None:
                unsigned = "policy trust: only a signed bundle says which server adds the noise"
                yield Refusal(unsigned, remedy="trust its key with --key")
            yield from self._beyond(promise)
        elif not self.unprotected:
            yield _refused("unprotected", "the bundle gives no guarantee for its updates", "unprotected: true")
        clip = release.clip if promise is None else promise.clip
        if clip is not None and clip > self.largest_clip * NEAR:
            enough = _short(clip, lambda value: value >= clip)
            yield _refused("largest_clip", f"updates are clipped to {clip:g}", f"largest_clip: {enough}")

    def too_few(self, promise: Promise | None, seen: int) -> bool:
        """Say whether a secure sum of so many clients, as the device sees them, is opened of too few."""
        return seen < self.least_cohort and not (promise is not None and promise.trust == "local")

    def _beyond(self, promise: Promise) -> Iterator[Refusal]:
        if promise.trust == "central" and self.trust == "local":
            yield _refused("trust", "the server would see the sum before noise is added to it", "trust: central")
        if promise.trust == "central" and promise.cohort < self.least_cohort:
            seen = f"sums of {promise.cohort} clients would be opened"
            yield _refused("least_cohort", seen, f"least_cohort: {promise.cohort}")
        if promise.multiplier * NEAR < self.least_noise:
            least = f"the noise is {promise.multiplier:.4g} times the sensitivity of a release"
            enough = _short(promise.multiplier, lambda value: value <= promise.multiplier)
            yield _refused("least_noise", least, f"least_noise: {enough}")
        if promise.delta > self.delta * NEAR:
            enough = _short(promise.delta, lambda value: value >= promise.delta)
            yield _refused("delta", f"what is promised has delta {promise.delta:g}", f"delta: {enough}")
        if promise.epsilon > self.epsilon * NEAR:
            spends = f"its {promise.rounds} rounds would spend epsilon {promise.epsilon:.4g}"
            yield _refused("epsilon", spends, f"epsilon: {math.ceil(promise.epsilon)}")


OPEN = Policy(
    trust="central",
    unprotected=True,
    epsilon=1e300,
    delta=0.5,
    least_noise=1e-300,
    largest_clip=1e300,
    releases_per_day=(1 << 31) - 1,
    least_cohort=1,
    signed=False,
)
"""This lets anything leave: for checks of what a device computes, on data that are nobody's."""


def event_of(promise: Promise | None) -> Event:
    """Return one release under a promise as an accountant sees it. Raises `InputError` where there can be none.

    >>> event_of(None).pure
    inf
    """
    if promise is None:
        return Event("none")
    return Event(promise.mechanism, promise.norm, promise.multiplier, promise.steps)


def _refused(key: str, what: str, instead: str) -> Refusal:
    return Refusal(f"policy {key}: {what}", instead)


def _short(value: float, allows: Callable[[float], bool]) -> str:
    """Return a limit in few digits where these still allow the value, and in all of them elsewhere."""
    return next((text for text in (f"{value:.4g}", repr(value)) if allows(float(text))), repr(value))


def _broken(release: ReleaseRecord, promise: Promise) -> Iterator[str]:
    """Name what a promise says and the bundle's own settings, by which the device works, do not keep."""
    if release.noised != NOISED[promise.trust]:
        yield f"under {promise.trust} trust noise is added {NOISED[promise.trust]}, by its settings {release.noised}"
    if promise.trust == "local" and promise.adjacency != "replace-one":
        yield f"each upload is seen, which adjacency {promise.adjacency} does not cover"
    if release.noise != promise.mechanism:
        yield f"{promise.mechanism} noise is promised, its settings say {release.noise}"
    if release.weights != "uniform":
        yield "the number of interactions leaves the device too"
    if release.norm != promise.norm or release.clip is None or release.clip > promise.clip * NEAR:
        clip = "not clipped" if release.clip is None else f"clipped to {release.clip:g} {release.norm}"
        yield f"updates are {clip} instead of to {promise.clip:g} {promise.norm}"
    else:
        yield from _too_quiet(release, promise, REACH[promise.adjacency] * release.clip)
    try:
        if not event_of(promise).row.guarantees:
            yield f"mechanism {promise.mechanism} bounds nothing"
    except InputError as error:
        yield str(error)


def _too_quiet(release: ReleaseRecord, promise: Promise, sensitivity: float) -> Iterator[str]:
    """Compare the noise that is added with what is promised; on a grid, in whole steps of it."""
    if release.step is not None:
        steps = max(1, math.floor(sensitivity / release.step * NEAR))
        if promise.steps not in (0, steps):
            yield f"the sensitivity of a release is {steps} steps of its grid, not {promise.steps}"
        if promise.steps and promise.norm == "l1":
            sensitivity = steps * release.step
    if promise.multiplier > release.scale / sensitivity * NEAR:
        yield f"the noise is {release.scale / sensitivity:.4g} times the sensitivity, not {promise.multiplier:.4g}"


def _mapping(path: Path) -> dict[str, Any]:
    """Return a YAML file's keys and values as they are written: texts and lists of texts, whatever they look like."""
    import yaml

    try:
        text = short(path, MOST_BYTES).decode("utf-8")
        depth = 0
        for event in yaml.parse(text, Loader=yaml.BaseLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST or isinstance(event, yaml.AliasEvent):
                raise ValueError("aliases and deep nesting are not read; write plain keys and values")
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a policy: {reason(error)}") from error
    if node is None or node.value == "":
        return {}
    found: dict[str, Any] = {}
    wrong = InputError(f"{path} is not a policy: write keys and values, such as epsilon: 4")
    if not isinstance(node, yaml.MappingNode):
        raise wrong
    for key, value in node.value:
        several = isinstance(value, yaml.SequenceNode)
        if not all(isinstance(one, yaml.ScalarNode) for one in (key, *(value.value if several else [value]))):
            raise wrong
        if key.value in found:
            raise InputError(f"{path} is not a policy: key {key.value} is given twice; keep one")
        found[key.value] = [one.value for one in value.value] if several else value.value
    return found
