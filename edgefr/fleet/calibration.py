"""A calibration is what `edgefr calibrate` measured on a host: the schema of calibration.json, and reading it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from privacy.errors import InputError

if TYPE_CHECKING:
    from edgefr.fleet.work import Work

SCHEMA: Literal["edgefr.calibration/1"] = "edgefr.calibration/1"
FITS, NO_MEMORY, TOO_SLOW, BROKEN = "fits", "out of memory", "too slow", "broken"
LIMIT = 1_000_000  # bytes of a calibration file
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Above = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Outcome = Annotated[str, Field(pattern=rf"^({FITS}|{NO_MEMORY}|{TOO_SLOW}|{BROKEN}: [^\n]+)$")]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


class Host(_Record):
    """A host is one thread of the machine that measured; another machine or version is measured anew."""

    cpu: str = Field(description="name of the processor")
    cores: int = Field(ge=1, description="cores that the process may use")
    python: str
    numpy: str
    onnxruntime: str
    gflops: Above = Field(description="fp32 matrix products of one thread, GFLOP/s")
    copy_gbs: Above = Field(description="memory copy of one thread, each byte counted once, GB/s")

    def same(self, other: Host) -> bool:
        """Say whether it is the same machine with the same versions, whatever its figures."""
        figures = {"gflops", "copy_gbs"}
        return self.model_dump(exclude=figures) == other.model_dump(exclude=figures)


class Cost(_Record):
    """This is one call on the host, in CPU seconds of one thread; `flops` and `traffic_bytes` are counted."""

    median_ms: Amount
    min_ms: Amount
    flops: Amount = Field(description="operations of the call")
    traffic_bytes: Amount = Field(description="bytes it reads and writes at least once")


class StepWork(_Record):
    """This is the work of the measured training step, in the words of `fleet.Work`."""

    examples: Above = Field(description="examples of the largest measured step")
    flops_per_example: Amount
    trained_parameters: Amount
    resident_parameters: Amount
    activation_bytes: Amount
    upload_bytes: Amount = Field(description="of one round; tells models apart")
    optimiser: Literal["sgd", "adam"]
    passes: Above
    width: Above

    def work(self) -> Work:
        from edgefr.fleet.work import Work

        return Work(
            steps=1,
            examples_per_step=self.examples,
            flops_per_example=self.flops_per_example,
            trained_parameters=self.trained_parameters,
            resident_parameters=self.resident_parameters,
            activation_bytes=self.activation_bytes,
            bytes_down=0,
            bytes_up=self.upload_bytes,
            optimiser=self.optimiser,
            passes=self.passes,
            width=self.width,
        )


class PhaseCost(_Record):
    """These are steps of one phase on the host: `fixed_ms` + `example_ms` x examples, through the measured `points`."""

    name: str
    when: Literal["round", "final"]
    epochs: int = Field(ge=1)
    fixed_ms: Amount
    example_ms: Amount
    points: list[tuple[Amount, Amount, Amount]] = Field(min_length=1, description="examples, median ms, min ms")


class Activity(_Record):
    """A bundle does one activity in a fresh process without a memory limit; null figures: it failed."""

    outcome: Outcome
    load_s: Amount | None = Field(None, description="from the start of the process until it is ready, wall seconds")
    peak_mb: Amount | None = Field(None, description="peak resident memory of the process, MB")


class Calls(Activity):
    """These are calls that recommend, or that encode a text."""

    cost: Cost | None = None


class Learning(Activity):
    """These are training steps."""

    phases: list[PhaseCost] = Field(default_factory=list)
    work: StepWork | None = None

    def line(self) -> tuple[float, float] | None:
        """Return (fixed ms, ms per example) of a round's step, over its phases by their epochs; None: not measured."""
        phases = [phase for phase in self.phases if phase.when == "round"]
        epochs = sum(phase.epochs for phase in phases)
        if not epochs:
            return None
        fixed = sum(phase.epochs * phase.fixed_ms for phase in phases) / epochs
        return fixed, sum(phase.epochs * phase.example_ms for phase in phases) / epochs


class Measured(_Record):
    """This says what one content of bundles costs on the host. Null: the bundle does not do that."""

    recommend: Calls
    learn: Learning | None = None
    encode: Calls | None = None


class ClassTrial(_Record):
    """This is a device class's bundle under its class's memory limit. `content` is a key of `measured`."""

    bundle_id: str
    variant: str
    content: str
    app_mb: Above
    recommend: Outcome
    learn: Outcome | None = None
    encode: Outcome | None = None


class Calibration(_Record):
    """This is the content of calibration.json."""

    schema_: Literal["edgefr.calibration/1"] = Field(alias="schema")
    host: Host
    measured: dict[str, Measured]
    classes: dict[str, ClassTrial]

    def learning(self, name: str) -> Learning | None:
        """Return the measured training steps of a class's bundle; None: no such class, or it does not learn."""
        trial = self.classes.get(name)
        found = self.measured[trial.content].learn if trial is not None and trial.content in self.measured else None
        return found if found is not None and found.line() is not None and found.work is not None else None


def read_calibration(path: Path) -> Calibration:
    """Read a calibration file. Raises `InputError` for one that is missing, over 1 MB or not a calibration."""
    try:
        with open(path, "rb") as file:
            raw = file.read(LIMIT + 1)
        if len(raw) > LIMIT:
            raise InputError(f"{path} is larger than 1 MB: not a calibration; make one with `edgefr calibrate`")
        return Calibration.model_validate(json.loads(raw))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; make it with `edgefr calibrate`") from error
    except (ValidationError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        where = ".".join(map(str, first["loc"])) + ": " + first["msg"] if first else "it is not JSON"
        raise InputError(f"{path} is not a calibration ({where}); make it anew with `edgefr calibrate`") from error
