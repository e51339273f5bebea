"""This is the schema of devices.yaml: device classes, networks, runtimes, the fleet of them, and the round policy."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from edgefr.config.arguments import checked
from edgefr.config.documents import Document, PublicModel
from edgefr.config.packaged_files import shipped
from edgefr.fleet.calibration import Calibration, read_calibration
from edgefr.fleet.evidence import (
    _NUMBER,
    Count,
    Evidence,
    Figure,
    FleetPart,
    Fraction,
    NotNegative,
    Positive,
    Shares,
    Source,
)
from edgefr.fleet.policies import POLICIES
from privacy.errors import unknown
from privacy.setting_scope import ReadWith, named_in


class Runtime(FleetPart):
    """A runtime runs the model on the device."""

    rss_mb: Figure = Field(description="resident memory before any model, MB")
    step_overhead_ms: Figure = Field(description="fixed cost of a training step on the calibration host, ms")
    optimiser_passes: Figure = Field(description="times the optimiser walks through memory: 1 fused, 4 unfused AdamW")


class Bandwidth(Evidence):
    """These are the rates of a network class; medians over clients."""

    down_mbps: Positive = Field(description="download rate, Mbit/s")
    up_mbps: Positive = Field(description="upload rate, Mbit/s")
    rtt_ms: NotNegative = Field(description="round-trip time, ms")
    sigma_ln: NotNegative = Field(description="lognormal spread of a client's median, and of rounds around it")


class Radio(Evidence):
    """This is the energy that a network class takes."""

    j_per_mb_down: NotNegative = Field(description="download energy, J/MB")
    j_per_mb_up: NotNegative = Field(description="upload energy, J/MB")
    tail_j: NotNegative = Field(description="energy of the radio staying awake after each transfer, J")


class Network(FleetPart):
    """This is a network class."""

    bandwidth: Bandwidth = Field(description="rates and delay")
    radio: Radio = Field(description="energy of transfers")


class Soc(FleetPart):
    """This is the processor."""

    name: str = Field(description="name of the chip")
    cores: str = Field(description="cores and clock, as text")
    isa: str = Field(description="instruction set")
    dotprod: bool = Field(description="has int8 dot products")
    fp16: bool = Field(description="has half-precision arithmetic")
    i8mm: bool = Field(False, description="has int8 matrix products")


class Memory(FleetPart):
    """This is the memory of a device class."""

    total_mb: Positive = Field(description="RAM of the device, MB")
    app_mb: Figure = Field(description="RAM that one app may use, MB")
    copy_gbs: Figure = Field(description="memory copy rate, each byte counted once, GB/s")
    peak_gbs: Figure | None = Field(None, description="peak memory rate on paper, GB/s; not used by the cost model")


class Compute(FleetPart):
    """Sustained rates of a device class on all the cores it may use."""

    fp32_gflops: Figure = Field(description="fp32 matrix products, GFLOP/s")
    int8_gops: Figure = Field(description="int8 matrix products, GOP/s")
    fp16_gflops: Figure | None = Field(None, description="fp16 on the CPU, GFLOP/s; not used by the cost model")
    gpu_fp16_gflops: Figure | None = Field(None, description="fp16 on the GPU, GFLOP/s; not used by the cost model")
    npu_gflops: Figure | None = Field(None, description="effective rate of the NPU, GFLOP/s; not used either")


class Power(FleetPart):
    """This is the power that a device class draws."""

    idle_w: Figure = Field(description="power while doing nothing, W")
    active_w: Figure = Field(description="power of the whole device while it computes, W")
    battery_wh: Figure | None = Field(None, description="battery, Wh; null for a device on mains power")


class Throttle(Evidence):
    """This heat model has two states: full speed, then slower."""

    after_s: Positive = Field(description="seconds of work at full speed")
    factor: Annotated[float, Field(gt=0, le=1, **_NUMBER)] = Field(description="speed after that, of the full speed")


class Device(FleetPart):
    """This is a device class."""

    label: str = Field(description="what people call it")
    soc: Soc = Field(description="processor")
    memory: Memory = Field(description="memory")
    compute: Compute = Field(description="rates")
    power: Power = Field(description="power and battery")
    throttle: Throttle | None = Field(None, description="slows down under load; null for never")
    storage: str = Field(description="storage, as text")
    networks: Shares = Field(description="share of clients of this class on each network class; sums to 1")


class Availability(FleetPart):
    """This says when a client can be reached: spells on and off the network, lognormal in length, through the day."""

    mean_on_h: Annotated[float, Field(ge=0.05, **_NUMBER)] = Field(description="mean spell on, hours")
    mean_off_h: Annotated[float, Field(ge=0.05, **_NUMBER)] = Field(description="mean spell off, hours")
    sigma_ln: Annotated[float, Field(ge=0, le=3, **_NUMBER)] = Field(description="lognormal spread of both")
    by_hour: Annotated[list[Annotated[float, Field(ge=0.01, **_NUMBER)]], Field(min_length=24, max_length=24)] = Field(
        description="24 factors, midnight first: a spell on that starts in this hour is so many times as long"
    )
    work: Literal["fails", "pauses"] = Field(
        "fails", description="what becomes of computing when a spell on ends; a transfer fails in any case"
    )


class Battery(FleetPart):
    """These devices have a battery: full once a day, drained by their owner and by rounds."""

    min_soc: Fraction = Field(0.2, description="refuse a round that would leave less than this share of the charge")
    own_use_per_hour: Fraction = Field(0.03, description="share of the charge that the owner uses per hour")
    charging_h: Annotated[float, Field(ge=0, le=24, **_NUMBER)] = Field(
        0.0, description="hours a day on the charger, up to the hour at which it is full; rounds then cost no charge"
    )
    only_charging: bool = Field(False, description="refuse rounds that the device would not spend on its charger")


class FleetSection(FleetPart):
    """The fleet says which devices there are, in which numbers, and how they behave."""

    share: Shares = Field(description="share of clients on each device class; sums to 1")
    stack: str = Field(description="key in `runtimes`: what runs the model")
    activity_correlation: Annotated[float, Field(ge=-1, le=1, **_NUMBER)] = Field(
        0.0, description="rank correlation between a device's speed and its user's number of interactions"
    )
    networks: Shares | None = Field(None, description="network mix for all devices in place of their own; sums to 1")
    availability: Availability | None = Field(None, description="when clients can be reached; null for always")
    dropout: Fraction = Field(0.1, description="probability that a client leaves in the middle of a round")
    battery: Battery | None = Field(None, description="model of the charge; null to ignore batteries")


ASYNC = ReadWith("policy", "async")


class Rounds(FleetPart):
    """The round policy says whom the server waits for."""

    policy: Annotated[str, named_in(POLICIES)] = Field(
        "deadline",
        description="wait for everyone until the deadline, only for the first as many as wanted, or for no one: "
        "async takes whatever fills the buffer, from whichever round it is",
    )
    deadline_s: Annotated[float, Field(gt=0, le=604800, **_NUMBER)] = Field(
        600.0, description="seconds after which a round (async: a client's work) is given up; at most a week"
    )
    over_select: Annotated[float, Field(ge=1, le=10, **_NUMBER), ReadWith("concurrency", None)] = Field(
        1.3, description="clients invited (async: at work at any time, unless concurrency says so) per client wanted"
    )
    min_fraction: Fraction = Field(
        0.8, description="a round with fewer uploads than this share of those wanted is void"
    )
    buffer: Annotated[Count | None, ASYNC] = Field(
        None, description="async: updates that make an aggregate; null for clients_per_round of the experiment"
    )
    concurrency: Annotated[Count | None, ASYNC] = Field(
        None, description="async: clients at work at any time; null for over_select x buffer"
    )
    staleness_power: Annotated[float, Field(ge=0, le=10, **_NUMBER), ASYNC] = Field(
        0.5, description="async: an update that is t aggregates old counts (1 + t)^-power; 0 for no discount"
    )
    max_staleness: Annotated[int, Field(ge=0, le=1000, strict=True), ASYNC] = Field(
        10, description="async: updates older than so many aggregates are thrown away"
    )

    @property
    def waits(self) -> bool:
        """Say whether a round is about one cohort that is waited for, as `Policy.waits`."""
        return POLICIES[self.policy].waits

    def over_selected(self, wanted: int) -> int:
        """Return how many clients to invite, or to have at work, so that about `wanted` contribute."""
        return math.ceil(self.over_select * wanted - 1e-9)

    def buffered(self, wanted: int, clients: int) -> tuple[int, int]:
        """Return how many updates make an aggregate of policy async, and how many of `clients` are at work at a time.

        >>> Rounds(policy="async", buffer=4).buffered(10, 5)
        (4, 5)
        """
        buffer = min(self.buffer or wanted, clients)
        return buffer, min(self.concurrency or self.over_selected(buffer), clients)


SHIPPED = Path("devices.yaml")
"""What the fleet file is called that commands take where none is named."""
MEASURED_STACK = "python_ort"
"""The runtime that `edgefr calibrate` measures."""


class CostModel(FleetPart):
    """The cost model says where a training step's seconds and memory come from."""

    mode: Literal["analytic", "host-ratio"] = Field(
        "analytic",
        description="analytic: operations and bytes over the device's rates; host-ratio: what a host measured, scaled "
        "by the ratios of compute and copy rates",
    )
    calibration: Calibration | None = Field(
        None, description="calibration.json of `edgefr calibrate`: a file name, or its content"
    )

    @property
    def measured(self) -> bool:
        return {"analytic": False, "host-ratio": True}[self.mode]


class FleetFile(FleetPart, PublicModel):
    """This is the content of devices.yaml."""

    schema_: Literal["edgefr.devices/1"] = Field(alias="schema", description="version of this layout")
    sources: dict[str, Source] = Field(description="where figures come from")
    runtimes: Annotated[dict[str, Runtime], Field(min_length=1)] = Field(description="what runs the model on a device")
    networks: Annotated[dict[str, Network], Field(min_length=1)] = Field(description="network classes")
    devices: Annotated[dict[str, Device], Field(min_length=1)] = Field(description="device classes")
    fleet: FleetSection = Field(description="the fleet made of them")
    rounds: Rounds = Field(default_factory=lambda: Rounds.model_validate({}), description="the round policy")
    cost: CostModel = Field(
        default_factory=lambda: CostModel.model_validate({}), description="where a step's seconds come from"
    )

    def brief(self) -> list[str]:
        """Return how many device classes there are, and the shares of those that the fleet has."""
        head = f"<FleetFile: {len(self.devices)} device classes, {self.fleet.stack}, rounds by {self.rounds.policy}; "
        shares = ", ".join(f"{name} {share:.3g}" for name, share in self.fleet.share.items() if share > 0)
        return [f"{head}{shares}>"]

    @model_validator(mode="after")
    def _calibrated(self) -> "FleetFile":
        known, problem, at = self.cost.calibration, "", "mode"
        if not self.cost.measured:
            return self
        if known is None:
            problem = "host-ratio needs cost.calibration, a file that `edgefr calibrate RUN` writes"
        elif self.fleet.stack != MEASURED_STACK:
            problem = f"host-ratio is measured with {MEASURED_STACK}, but fleet.stack is {self.fleet.stack}"
        else:
            missing = (n for n, share in self.fleet.share.items() if share > 0 and known.learning(n) is None)
            for name in missing:
                mend = "calibrate bundles of this fleet that learn, or set cost.mode to analytic"
                problem, at = f"no training step of class {name} was measured; {mend}", "calibration"
                break
        if problem:
            raise PydanticCustomError("cost", "{problem}", {"problem": problem, "at": ("cost", at)})
        return self

    @model_validator(mode="after")
    def _names_exist(self) -> "FleetFile":
        named: list[tuple[str, str, Iterable[str], tuple[str, ...]]]
        named = [("runtime", self.fleet.stack, self.runtimes, ("fleet", "stack"))]
        named += [("device", name, self.devices, ("fleet", "share", name)) for name in self.fleet.share]
        named += [("network", n, self.networks, ("fleet", "networks", n)) for n in self.fleet.networks or {}]
        for device, spec in self.devices.items():
            named += [("network", n, self.networks, ("devices", device, "networks", n)) for n in spec.networks]
        named += [("source", src, self.sources, at) for src, at in _sources_named(self)]
        for what, name, known, at in named:
            if name not in known:
                problem = {"problem": str(unknown(what, name, known)), "at": at}
                raise PydanticCustomError("name", "{problem}", problem)
        return self


def _sources_named(model: BaseModel, at: tuple[str, ...] = ()) -> list[tuple[str, tuple[str, ...]]]:
    """Return every `src` under a model with its location."""
    found = []
    for name in type(model).model_fields:
        value = getattr(model, name)
        children = value.items() if isinstance(value, dict) else [(None, value)]
        if name == "src" and value is not None:
            found.append((value, (*at, name)))
        for key, child in children:
            if isinstance(child, BaseModel):
                found += _sources_named(child, (*at, name) if key is None else (*at, name, key))
    return found


@checked
def load_fleet(path: str | Path = "devices.yaml", overrides: dict[str, Any] | None = None) -> FleetFile:
    """Read and check a devices.yaml.

    `overrides` is laid over the file: a nested mapping in the file's own layout, such as
    ``{"fleet": {"dropout": 0.2}, "rounds": {"policy": "first_k"}}``. Sections merge; a mapping of shares
    (`fleet.share`, `networks` of a device or of the fleet) is replaced as a whole, since its parts sum to 1. The
    `cost.calibration` of a file is named relative to that file, one in `overrides` relative to the current folder.

    Where there is no `devices.yaml` in the working folder, that name is the fleet that ships with edgefr.

    Raises `InputError`, one line: ``FILE:LINE: field.path: what is wrong; how to mend it``.

    >>> load_fleet("devices.yaml", {"fleet": {"dropout": 0.0}}).fleet.dropout
    0.0
    """
    path = Path(path)
    if path == SHIPPED and not path.exists():
        path = shipped(SHIPPED)
    document = Document.read(path)
    _read_named_calibration(document, path.parent)
    for dotted, value in _leaves(overrides or {}, ()):
        document.put(dotted, value, source=f"--set {option_of(dotted)} over {path}")
    _read_named_calibration(document, Path())
    return document.validate(FleetFile)


def option_of(dotted: str) -> str:
    """Return the field of an experiment that sets a field of a fleet file.

    >>> option_of("fleet.dropout"), option_of("rounds.policy")
    ('fleet.dropout', 'fleet.rounds.policy')
    """
    return dotted if dotted.startswith("fleet.") else f"fleet.{dotted}"


def _read_named_calibration(document: Document, folder: Path) -> None:
    """Put a calibration file's content where a document names it, so that a run's own devices.yaml is whole."""
    section = document.values.get("cost")
    named = section.get("calibration") if isinstance(section, dict) else None
    if isinstance(named, str):
        content = read_calibration(folder / named).model_dump(mode="json", by_alias=True, exclude_none=True)
        document.put("cost.calibration", content, source=str(folder / named))


def _leaves(over: dict[str, Any], at: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested mapping by dotted name; a mapping of shares is one value."""
    for key, value in over.items():
        here = (*at, str(key))
        shares = here == ("fleet", "share") or (key == "networks" and bool(at))
        if isinstance(value, dict) and not shares:
            yield from _leaves(value, here)
        else:
            yield ".".join(here), value
