"""A run is a folder: what was asked, what happened, what came out. Every file appears whole or not at all."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import yaml

from edgefr.config import frames
from edgefr.config.arguments import checked
from edgefr.config.display import Brief
from edgefr.experiment.experiment import Experiment
from edgefr.experiment.paths import named_from
from edgefr.simulation.runs.event_log import EventLog
from edgefr.simulation.runs.layout import CHECKPOINT, EARLIER, LEDGER, LOCK, POPULATION, PRIVATE, RESOLVED, SIGNING_KEY
from privacy.errors import InputError
from privacy.files import sha256_of, write_atomic, write_json
from privacy.machine import alone
from privacy.noise_key import FILE as NOISE_KEY
from privacy.noise_key import NoiseKey

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import Tensor

    from edgefr.fleet import FleetFile
    from edgefr.simulation.runs.lineage import Lineage
    from privacy.ledger import Ledger


class RunFolder(Brief):
    """This is one run's folder; what is in it is read by `metrics`, `users`, `ledger`, `events` and `recommend`.

    `experiment.yaml` (resolved), `devices.yaml` (as used), `resolved.json` (what they come to), `summary.json`,
    `metrics.parquet` (one row per round, split, stage and metric), `private/users.parquet` (metrics of single users:
    personal data), `ledger.parquet` (who released how often, where that is worth something), `lineage/` (rounds that
    real devices did), `events.jsonl` (the virtual clock's log), `checkpoint/` (tensors), `encoder/` (the student),
    `bundles/`, `report.html`.
    """

    @checked
    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.log = EventLog(self.path / "events.jsonl")

    @classmethod
    def create(cls, path: str | Path) -> Self:
        """A new run folder. Raises `InputError` if it already holds anything; nothing is ever overwritten."""
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(held.name != LOCK for held in path.iterdir())):
            raise InputError(f"{path} already holds {_held(path)} (nothing was changed)")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the run folder {path}: {error.strerror or error}; choose another --out"
            ) from None
        return cls(path)

    @classmethod
    @contextmanager
    def started(cls, path: str | Path) -> Iterator[Self]:
        """`create` for the length of a block; a block that fails before it wrote anything leaves no folder behind.

        Nobody else works in the folder meanwhile: two that begin in one at a time would leave one made of both.
        """
        run = cls.create(path)
        try:
            with run.alone():
                yield cls.create(path)  # which another may have filled before this one held it
        except BaseException:
            with suppress(OSError):  # it holds something: that stays
                run.path.rmdir()
            raise

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """An existing, finished run. Raises `InputError` if there is none at `path`."""
        run = cls(path)
        if not (run.path / "experiment.yaml").is_file():
            raise InputError(f"{path} is not a run folder (no experiment.yaml); give the folder that simulate printed")
        if not (run.path / "summary.json").is_file():
            raise InputError(
                f"the run in {path} did not finish (no summary.json); go on with edgefr simulate --resume {path}"
            )
        seeds = sorted(run.path.glob("seed-*/summary.json"))
        if seeds and not (run.path / CHECKPOINT).exists():
            raise InputError(f"{path} holds a run per seed; name one of them, for example {seeds[0].parent}")
        return run

    @classmethod
    def unfinished(cls, path: str | Path) -> Self:
        """A run that was started and has no summary yet. Raises `InputError` for anything else."""
        run = cls(path)
        if not (run.path / "experiment.yaml").is_file():
            taken = run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir()))
            other = "another --out" if taken else f"--out {path}"
            raise InputError(f"{path} holds no run to continue (no experiment.yaml); start it with {other}")
        if (run.path / "summary.json").is_file():
            raise InputError(f"the run in {path} is finished; nothing is left to do")
        return run

    @classmethod
    @contextmanager
    def going_on(cls, path: str | Path) -> Iterator[Self]:
        """`unfinished` for the length of a block, in which nobody else works in the folder."""
        with cls.unfinished(path).alone():
            yield cls.unfinished(path)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from working in the folder. Raises `InputError` where one does."""
        try:
            handle = alone(self.path / LOCK)
        except BlockingIOError:
            raise InputError(
                f"another process is at work in {self.path}; wait for it, or choose another --out (nothing was changed)"
            ) from None
        except OSError as error:
            raise InputError(f"cannot write {self.path / LOCK}: {error.strerror or error}; fix that first") from error
        try:
            yield
        finally:
            with suppress(OSError):
                (self.path / LOCK).unlink()
            os.close(handle)

    @contextmanager
    def recorded(self, experiment: Experiment, fleet: FleetFile, key: NoiseKey | None = None) -> Iterator[None]:
        """Write what was asked for into the folder before the block runs; a block that fails takes it back.

        A kill or Ctrl-C leaves it, so that `resume` can start from it. The experiment is written last: where it is, all
        is there, also the noise's key.
        """
        try:
            self.noise_key(experiment.draws_noise, key)
            self.write_devices(fleet)
            self.write_experiment(experiment)
            yield
        except Exception:
            self.forget()
            raise

    def forget(self) -> None:
        """Take back what `recorded` and a kill while it wrote leave behind, and the folder if it is empty then."""
        self.sweep()
        private = (f"{PRIVATE}/{name}" for name in (NOISE_KEY, SIGNING_KEY, POPULATION, EARLIER))
        for name in ("experiment.yaml", "devices.yaml", RESOLVED, *private):
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):
            (self.path / PRIVATE).rmdir()
        with suppress(OSError):  # it holds something else, or was never made
            self.path.rmdir()

    def sweep(self) -> None:
        """Remove what a kill left half written."""
        for path in sorted(self.path.rglob(".*.part")):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    @classmethod
    def of(cls, run: RunFolder | str | Path) -> Self:
        """A finished run, from its path or from a run that was opened. Raises `InputError` as `open`."""
        return cls.open(run.path if isinstance(run, RunFolder) else run)

    @property
    def experiment(self) -> Experiment:
        """Return the resolved experiment."""
        from edgefr.experiment.experiment import load_experiment

        return load_experiment(self.path / "experiment.yaml")

    @property
    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        return self._json("summary.json")

    def _json(self, name: str) -> dict[str, Any]:
        """Return the content of a file. Raises `InputError` for one that is missing or damaged."""
        try:
            found: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {self.path / name}: {error}; run the experiment again") from None
        return found

    @property
    def metrics(self) -> DataFrame:
        """Return everything that was measured, one value a row.

        `stage` measured after the learning of `after` on the held-out items of `on`, of a `group` of users, on
        `which` items (valid, test) by a `ranking` (full, sampled) with a `mask`; `round` (none: after the last), the
        `metric`, its mean `value` over so many `users`.
        """
        return frames.table(self.path / "metrics.parquet")

    @property
    def users(self) -> DataFrame:
        """Return the final stages' metrics of single users, a column per metric: personal data, of `private/`."""
        return frames.table(self.path / PRIVATE / "users.parquet")

    @property
    def ledger(self) -> DataFrame:
        """Return how often each client released something, by mechanism, in the run and all served rounds together.

        It is empty where no noise made that count.
        """
        from privacy.ledger import COLUMNS

        served = self.lineage.ledger()
        if served is None:
            return frames.table(self.path / LEDGER, COLUMNS)
        whole = self.read_ledger({"delta": served.delta, "adjacency": served.adjacency}) or served
        return frames.of_columns(whole.columns())

    @property
    def lineage(self) -> Lineage:
        """Return the rounds that real devices did, as the run's lineage has them."""
        from edgefr.simulation.runs.lineage import Lineage

        return Lineage.of(self.path)

    @property
    def events(self) -> DataFrame:
        """Return the virtual clock's log: `time` in seconds, `seq`, `round`, `client`, `kind`, what a kind tells."""
        return frames.events(self.log.path)

    def write_experiment(self, experiment: Experiment) -> None:
        """Save the resolved experiment without settings that nothing reads; it reads back as the same experiment."""
        from edgefr.experiment.unread_settings import read_values

        values = read_values(experiment)  # not as JSON, which has no infinity
        named_from(self.path, values)
        write_atomic(self.path / "experiment.yaml", yaml.safe_dump(values, sort_keys=False))

    def write_devices(self, fleet: FleetFile) -> None:
        """Save the fleet as it was used, overrides included."""
        values = fleet.model_dump(mode="json", by_alias=True, exclude_none=True)
        write_atomic(self.path / "devices.yaml", yaml.safe_dump(values, sort_keys=False))

    @property
    def resolved(self) -> dict[str, Any] | None:
        """Return what the experiment came to before round 1, as resolved.json has it; None for runs of before."""
        return self._json(RESOLVED) if (self.path / RESOLVED).exists() else None

    def write_resolved(self, facts: Mapping[str, Any]) -> None:
        """Save what the experiment comes to."""
        write_json(self.path / RESOLVED, dict(facts))

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Save the summary: the run is finished when this file exists."""
        write_json(self.path / "summary.json", summary)

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Save the learning curve and all final metrics as a table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pylist(rows)
        write_atomic(self.path / "metrics.parquet", lambda file: pq.write_table(table, file))

    def noise_key(self, drawn: bool, given: NoiseKey | None = None) -> NoiseKey | None:
        """Return the key of the run's simulated noise, kept in `private/` from its start; None where none is `drawn`.

        A run that starts takes the one `given`, or a new one. Raises `InputError` for a key that nothing would read.
        """
        if not drawn:
            if given is not None:
                raise InputError("a noise key is read where noise is drawn, and this experiment draws none: drop it")
            return None
        path = self.path / PRIVATE / NOISE_KEY
        if path.exists():
            return NoiseKey.read(path)
        if (self.path / CHECKPOINT).exists():
            raise InputError(f"{path} is gone, and without it the run's noise cannot go on; put it back")
        key = NoiseKey.new() if given is None else given
        key.write(self.closed(PRIVATE) / NOISE_KEY)
        return key

    def bind(self, key: NoiseKey, to: str) -> None:
        """Note beside the run's key that it makes the noise of what has this digest.

        Raises `InputError` for a key that has made another's: who knows both results could subtract one from the other.
        """
        if key.of != to:
            key.bound(to).write(self.closed(PRIVATE) / NOISE_KEY)

    def closed(self, name: str) -> Path:
        """Return a folder of the run that its owner alone may open: made, or closed to others, where it has to be."""
        folder = self.path / name
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        return folder

    def write_users(self, columns: Mapping[str, npt.NDArray[Any]], names: npt.NDArray[np.str_]) -> None:
        """Save metrics of single users in `private/`, which nothing exports, readable by its owner alone.

        `columns` are those of `Measurements.per_user`; `names` [users] are the users' own.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({**columns, "user": names[columns["user"]]} if columns else {"user": names[:0]})
        write_atomic(self.closed(PRIVATE) / "users.parquet", lambda file: pq.write_table(table, file), mode=0o600)

    def write_norms(self, norms: Mapping[str, float]) -> None:
        """Save what a run that guarantees something may not tell: exact statistics of its clients' own updates."""
        write_json(self.closed(PRIVATE) / "norms.json", dict(norms), mode=0o600)

    def write_ledger(self, ledger: Ledger, path: Path | None = None) -> None:
        """Save what every client has released (default: `ledger.parquet`), under the digest of the run's experiment."""
        from edgefr.simulation.runs.ledger_file import write_ledger_file

        write_ledger_file(path or self.path / LEDGER, ledger, sha256_of(self.path / "experiment.yaml"))

    def read_ledger(self, expected: Mapping[str, Any]) -> Ledger | None:
        """Read what every client has released, in the run and in all served rounds; None where that was not counted.

        `expected`: its delta and adjacency. Raises `InputError` for a ledger that is damaged, or of another run.
        """
        own, lineage = self.simulated_ledger(expected), self.lineage
        if own is None:
            return lineage.ledger()
        lineage.charge(own)
        return own

    def simulated_ledger(self, expected: Mapping[str, Any]) -> Ledger | None:
        """Read what every client has released in the run's own rounds; as `read_ledger`."""
        from edgefr.simulation.runs.ledger_file import read_ledger_file

        path = self.path / LEDGER
        ledger = read_ledger_file(path)
        if ledger is None:
            return None
        same = ledger.run == sha256_of(self.path / "experiment.yaml")
        if not same or (ledger.delta, ledger.adjacency) != (expected.get("delta"), expected.get("adjacency")):
            raise InputError(
                f"{path} is of another run than {self.path / 'experiment.yaml'}; put the run's own ledger there"
            )
        return ledger

    def write_tensors(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Save tensors as `checkpoint/<name>.safetensors`, readable by their owner alone: users' own are among them."""
        from safetensors.torch import save

        content = save({n: t.contiguous() for n, t in tensors.items()})
        write_atomic(self.closed(CHECKPOINT) / f"{name}.safetensors", content, mode=0o600)

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """Return tensors of `write_tensors`. Raises `InputError` for a missing or damaged file."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.path / CHECKPOINT / f"{name}.safetensors"
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise InputError(f"cannot read {path}: {error}; run the experiment again") from None


def free_folder(path: Path) -> Path:
    """Return `path`, or the first of path-2, path-3, ... that does not exist yet."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _held(path: Path) -> str:
    """Return what a path that is in use holds, and what to do about it."""
    if not (path / "experiment.yaml").exists():
        return "other files; choose another --out"
    if (path / "summary.json").exists():
        return "another run; choose another --out"
    again = f"edgefr simulate --resume {shlex.quote(str(path))}"
    return f"a run that did not finish; continue it with {again}, or choose another --out"
