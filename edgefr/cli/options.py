"""Options and arguments that several commands take are declared here, each once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from typer import Argument, Option

from privacy.errors import InputError

if TYPE_CHECKING:
    from pydantic import BaseModel

Settings = TypeVar("Settings", bound="BaseModel")
DEVICES = Path("devices.yaml")


def data_names() -> list[str]:
    """Return the names of data sets, for shell completion."""
    from edgefr.data.datasets import names

    return names()


def methods() -> list[str]:
    """Return the names of methods, for shell completion."""
    from edgefr.experiment.method import METHODS

    return list(METHODS)


def check_data(name: str | None) -> None:
    """Refuse a name that is no data set and no file at once, before anything heavy is imported. None: not asked."""
    if name is not None:
        from edgefr.data.datasets import reader

        reader(name)


class Ranked(StrEnum):
    """This says what a held-out item is ranked against."""

    full = "full"
    sampled = "sampled"


Bundle = Annotated[Path, Argument(help="A bundle that simulate or export wrote: a folder or a zip.")]
SignedBy = Annotated[list[Path] | None, Option(help="Public key that must have signed the bundle; may be repeated.")]
Count = Annotated[int, Option("-k", "--k", min=1, help="How many items.")]
Excluded = Annotated[list[str] | None, Option(help="Item ids to leave out; may be repeated.")]
Json = Annotated[bool, Option("--json", help="Print the report as JSON.")]

ExperimentFile = Annotated[Path | None, Option(help="Experiment file (YAML). Default: the demo.")]
FleetFile = Annotated[Path, Option(help="Fleet file: device classes, their shares, round policy.")]
DataSet = Annotated[
    str | None, Option(help="Data set: demo, ml-100k, ... Default: the experiment's.", autocompletion=data_names)
]
MethodName = Annotated[
    str | None,
    Option(help="Method: fedmf, ...; edgefr methods lists them. Default: the experiment's.", autocompletion=methods),
]
Rounds = Annotated[int | None, Option(min=0, help="Federated rounds. Default: the experiment's, or the method's.")]
ClientsPerRound = Annotated[
    float | None,
    Option(help="Clients of a round: a share up to 1, or a number. Default: the experiment's, or the method's."),
]
Epsilon = Annotated[
    float | None,
    Option(
        help="Epsilon of all rounds, for a client's whole data; inf: clip, no noise. Default: the experiment's. Where "
        "that has no mechanism: gaussian, clip 1 and aggregation.server_lr=auto."
    ),
]
Clip = Annotated[float | None, Option(help="Longest update of a client, L2 norm. Default: the experiment's.")]
DataDir = Annotated[Path | None, Option(envvar="EDGEFR_DATA", help="Folder with the public archives.")]
Chip = Annotated[str, Option(help="auto, cpu or cuda.")]
ChosenChip = Annotated[
    str | None, Option(help="auto, cpu or cuda. Default: auto.", autocompletion=lambda: ["auto", "cpu", "cuda"])
]
Workers = Annotated[int, Option(min=1, max=256, help="Runs at a time, each a process with one thread.")]
RayAddress = Annotated[
    str | None,
    Option(
        help="Ray cluster that does the runs: HOST:PORT, auto or local. Its machines share this folder. Default: this "
        "machine does."
    ),
]

# Of one device.
BundleFolder = Annotated[Path, Argument(metavar="BUNDLE", help="A bundle of simulate or export: a folder or a zip.")]
StateFolder = Annotated[Path, Option("--state", help="Folder of the device's private state; made when missing.")]
AsUser = Annotated[
    str | None, Option("--user", help="Name that a server knows the device by; of a bundle with users, one of them.")
]
TrustedKeys = Annotated[
    list[Path] | None,
    Option("--key", help="Public key that must have signed the bundle; none: that of first use. May be repeated."),
]
PolicyFile = Annotated[
    Path | None,
    Option(
        "--policy",
        help="What this device may release from now on (YAML: epsilon, unprotected, ...); kept as its policy.",
    ),
]
Renew = Annotated[bool, Option("--renew", help="Switch to another bundle of the same publisher and keep the ledger.")]
MaxRam = Annotated[
    float | None,
    Option(help="Memory limit, MB: training stops below it; Linux kills a process above it. Default: the policy's."),
]
MaxSeconds = Annotated[
    float | None,
    Option(
        help="Longest time, seconds: training stops early enough for its release; later the process is ended (not on "
        "Windows). Default: the policy's."
    ),
]

# Of its server.
Address = Annotated[str, Option("--url", help="Address that `edgefr serve` printed.")]
Authority = Annotated[
    Path | None, Option("--ca", help="Certificate (PEM) that the server's is signed by, if its code names none.")
]
OwnCertificate = Annotated[
    Path | None, Option("--tls-cert", help="Certificate (PEM) that this device shows; none: it shows nothing.")
]
OwnKey = Annotated[Path | None, Option("--tls-key", help="Private key (PEM) of --tls-cert; none: it has none.")]


def refuse_given(why: str, **given: object) -> None:
    """Raise `InputError` where one of these options was given: whoever gives it would take it for heeded."""
    for name, value in given.items():
        if value:
            raise InputError(f"--{name.replace('_', '-')} {why}")


def refuse_twice(changes: list[str], by: str = "--set", **given: object) -> None:
    """Raise `InputError` where `--set`, or what `by` names, has a field that one of these options sets too."""
    from edgefr.experiment.experiment import Change
    from edgefr.experiment.short_names import field_of

    for change in map(Change.parse, changes if any(value is not None for value in given.values()) else ()):
        for name, value in given.items():
            field = field_of(name)
            inside = field.removeprefix(f"{change.field}.")
            told = field == change.field or (isinstance(change.value, dict) and inside in change.value)
            if value is not None and told:
                option = f"--{name.replace('_', '-')} {value}"
                other = f"{by} {change.source.removeprefix('--set ')}"
                raise InputError(f"{option} and {other} set the same field, {field}; keep one of them")


def split(text: str) -> list[str]:
    """Return the names that stand in a text with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def validated(kind: type[Settings], **values: Any) -> Settings:
    """Return settings of some values. Raises `InputError` for one that cannot be."""
    from pydantic import ValidationError

    from edgefr.config.validation import describe

    try:
        return kind(**values)
    except ValidationError as error:
        raise InputError(describe(error, kind)) from None
