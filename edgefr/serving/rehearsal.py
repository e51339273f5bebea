"""A rehearsal runs some of a run's users as device processes on this host with the real server, beside the simulator.

It works on a copy of the run, so its lineage, keys and budgets stay; the copy's bundle carries the simulated users, and
all are invited to every round. The simulation's failures happen between device and server (`links`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.bundle import Bundle, open_bundle
from edge.device import Device
from edge.policy import OPEN, Policy
from edgefr.data.splits.holdout import Holdout
from edgefr.data.splits.leave_one_out import LeaveOneOut
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import load_fleet
from edgefr.serving import shadow as simulated
from edgefr.serving.keys import Keys
from edgefr.serving.links import Links
from edgefr.serving.origin import Origins
from edgefr.serving.serve import Served, by_http, fewest_answers, ledger_of, origins_of, serve
from edgefr.serving.server import Access
from edgefr.serving.shadow import Twin
from edgefr.simulation.bundle_checks import check_federated
from edgefr.simulation.bundles import export_run
from edgefr.simulation.runs.device_users import fleet_of, users_of_class
from edgefr.simulation.runs.folder import free_folder
from edgefr.simulation.runs.lineage import Journal
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.saved_model import open_model
from privacy.errors import InputError, unknown
from privacy.files import write_atomic, write_json
from privacy.progress import Progress

MOST = 64  # processes of about 100 MB each
LONGEST_S = 300.0  # of a round: a device bears with its link for so long
START_S = 60.0  # for a device to enrol and ask for its first round
COMMAND = (sys.executable, "-m", "edgefr", "device")
POLICY = "unprotected: true\nsigned: false\ntrust: central\nepsilon: 1.0e+6\nleast_noise: 1.0e-6\nleast_cohort: 1\n"
"""What rehearsing devices let leave: their data are the run's own, and it is the rounds that are looked at."""
ELSEWHERE = ("served*", "rehearsed*", "bundles*", "*.html", "events.jsonl", "private")
"""What a rehearsal needs nothing of."""


class Copy(Run):
    """This is the copy of a run whose rounds invite everybody who rehearses."""

    @property
    def experiment(self) -> Experiment:
        return super().experiment.model_copy(update={"clients_per_round": 1.0})


@dataclass(frozen=True)
class Rehearsed:
    """This is what a rehearsal leaves in `path`, the content of its `summary.json`."""

    path: Path
    summary: dict[str, Any]


def rehearse(
    run: Run,
    bundle_class: str,
    rounds: int,
    devices: int,
    *,
    timeout_s: float = 20.0,
    min_answers: int | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Rehearsed:
    """Rehearse `rounds` rounds with `devices` of a class's users, each a process, beside the simulator.

    All are invited to every round. A round waits `timeout_s`, which the fleet's deadline is scaled to. The run stays as
    it is; `summary.json` is written to `out` (default: RUN/rehearsed, or the first free of rehearsed-2, ...).

    Raises `InputError` for more devices than users of the class or allowed processes, for a method whose devices keep
    nothing private, and as `serve`.

    >>> rehearse(Run("runs/demo"), "laptop_x86", 3, 6).summary["largest_difference"]  # doctest: +SKIP
    4e-08
    """
    check_federated(run.experiment, "round that devices could go on with")
    protocol = run.experiment.protocol
    if not isinstance(protocol, LeaveOneOut | Holdout) or protocol.draws_apart:
        raise InputError("a rehearsal simulates rounds over one split: rehearse a run of protocol.name=leave-one-out")
    target = free_folder(run.path / "rehearsed") if out is None else out
    if target.exists():
        raise InputError(f"{target} is there already; give another --out (nothing was changed)")
    if not timeout_s <= LONGEST_S:
        raise InputError(f"a rehearsed round waits {LONGEST_S:g} s at most, and its clock is scaled; lower --timeout")
    clients, fewest = _chosen(run, bundle_class, devices), fewest_answers(min_answers, devices)
    with tempfile.TemporaryDirectory(prefix="edgefr-rehearsal-") as made:
        folder = Path(made)
        copy = _copied(run, folder / "run")
        export_run(copy, with_users=True, only=bundle_class, progress=progress)
        origins, numbers = origins_of(copy, bundle_class, clients), np.array(clients, np.int64)
        with Journal.locked(copy.path) as journal:
            ledger = ledger_of(copy, journal, origins, rounds)
            said = simulated.simulate_rounds(copy, numbers, rounds, ledger, fewest)
        stage = _Stage(copy, copy.path / "bundles" / bundle_class, origins, said, folder / "devices", timeout_s)
        try:
            served = serve(
                copy,
                bundle_class,
                rounds,
                timeout_s=timeout_s,
                min_answers=fewest,
                out=folder / "served",
                ready=stage.open,
                transport=by_http(Access(), copy, origins, rounds, stage.links.over),
                progress=progress,
                clients=clients,
                waits=True,
            )
        finally:
            stage.close()
        summary = {"class": bundle_class, "devices": devices, "rounds": rounds, "first_round": said.first}
        summary |= stage.compared(numbers, served)
    write_json(target / "summary.json", summary)
    return Rehearsed(target, summary)


@dataclass
class Processes:
    """These are processes of devices that hold `bundle`, with states in `folder`.

    `killed` counts kills by user, `failed` has the last line of those that ended with an error.
    """

    bundle: Path
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopping: bool = False

    def start(self, user: str, client: int, url: str, code: str, items: list[str]) -> None:
        """Start a user's device, which enrols with the code, learns from these items, and goes on by itself."""
        self.threads.append(threading.Thread(target=self._live, args=(user, client, url, code, items), daemon=True))
        self.threads[-1].start()

    def state(self, client: int) -> Path:
        return self.folder / str(client)

    def kill(self, user: str) -> None:
        """Kill a device's process as a power cut would; it is started again."""
        with self.lock:
            if user in self.running:
                self.killed[user] = self.killed.get(user, 0) + 1
                self.running[user].kill()

    def stop(self, timeout_s: float) -> None:
        """Wait for all devices to end, and end those that do not."""
        for thread in self.threads:
            thread.join(timeout_s)
        with self.lock:
            self.stopping = True
            for process in self.running.values():
                process.kill()
        for thread in self.threads:
            thread.join()

    def _live(self, user: str, client: int, url: str, code: str, items: list[str]) -> None:
        own, policy = self.folder / f"{client}.txt", self.folder / f"{client}.yaml"
        write_atomic(own, "item\n" + "\n".join(items) + "\n")
        write_atomic(policy, POLICY)
        where = (str(self.bundle), "--state", str(self.state(client)), "--url", url)
        enrolled = self._done(user, ["enrol", *where, "--code", code, "--policy", str(policy)])
        while enrolled and not self._done(user, ["join", *where, "--interactions", str(own)]):
            if user in self.failed or self.stopping:
                break

    def _done(self, user: str, arguments: list[str]) -> bool:
        """Run a command to its end; return whether it succeeded. Kills are no failures."""
        kills, surroundings = self.killed.get(user, 0), {**os.environ, "OMP_NUM_THREADS": "1"}
        with self.lock:
            if self.stopping:
                return False
            process = self.running[user] = subprocess.Popen(
                [*COMMAND, *arguments], env=surroundings, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        said = process.communicate()[1].decode("utf-8", "replace").strip()
        if process.returncode and self.killed.get(user, 0) == kills and not self.stopping:
            self.failed[user] = said.splitlines()[-1] if said else f"ended with {process.returncode}"
        return process.returncode == 0


@dataclass
class _Stage:
    """This runs a rehearsal's links and processes while the server listens."""

    run: Run
    bundle: Path
    origins: Origins
    said: Twin
    folder: Path
    timeout_s: float

    def __post_init__(self) -> None:
        self.processes = Processes(self.bundle, self.folder)
        users = self.origins.users
        fates = {(number, users[client]): fate for (number, client), fate in self.said.fates.items()}
        self.links = Links(fates, self.scale, self.said.first, self.processes.kill)
        self.began = self.ended = 0.0  # all devices wait for the first round; all have the last word

    @property
    def scale(self) -> float:
        return self.timeout_s / load_fleet(self.run.path / "devices.yaml").rounds.deadline_s

    def open(self, url: str) -> None:
        """Start a device for every user, and return when all wait for the first round."""
        users, model = self.origins.users, open_model(self.run).model
        own, keys = simulated.own_items(model), Keys(self.run.path)
        codes = keys.issue(list(users.values()))
        for client, user in users.items():
            items = [model.names.items[item] for item in own[client]]
            self.processes.start(user, client, url, codes[user], items)
        until = time.monotonic() + START_S + len(users)
        while (self.links.asked | self.processes.failed.keys()) < set(users.values()) and time.monotonic() < until:
            time.sleep(0.05)
        self.began = time.perf_counter()

    def close(self) -> None:
        self.ended = time.perf_counter()
        self.processes.stop(self.timeout_s)

    def compared(self, clients: npt.NDArray[np.int64], served: Served) -> dict[str, Any]:
        """Return the simulator's figures beside the measured ones."""
        said, users, traffic = self.said, self.origins.users, self.links.traffic
        model, bundle = open_model(self.run).model, open_bundle(self.bundle)
        bytes_of = [
            {
                "client": client,
                "simulated_up": said.bytes_up.get(client, 0),
                "up": traffic[users[client]].up,
                "simulated_down": said.bytes_down.get(client, 0),
                "down": traffic[users[client]].down,
            }
            for client in clients.tolist()
        ]
        missing, cohorts = served.summary["missing"], _cohorts(said)
        return {
            "time_scale": self.scale,
            "default_policy": _default_policy(bundle),
            "simulated": {
                "metrics": simulated.measured(self.run, clients, simulated.scores_of(model, said)),
                "answers": said.answers,
                "withheld_rounds": said.withheld,
                "failures": said.failures,
                "bytes_up": sum(said.bytes_up.values()),
                "bytes_down": sum(said.bytes_down.values()),
                "virtual_seconds": sum(said.seconds),
            },
            "happened": {
                "metrics": simulated.measured(self.run, clients, self._scores),
                "answers": [asked - away for asked, away in zip(cohorts, missing, strict=True)],
                "withheld_rounds": served.summary["withheld_rounds"],
                "late": sum(one.late for one in traffic.values()),
                "killed": sum(self.processes.killed.values()),
                "ended_early": sorted(set(self.processes.failed.values())),
                "bytes_up": sum(one.up for one in traffic.values()),
                "bytes_down": sum(one.down for one in traffic.values()),
                "seconds": round(self.ended - self.began, 3),
            },
            "largest_difference": simulated.difference(said, served.shared),
            "clients": bytes_of,
            "privacy": served.summary["privacy"],
        }

    def _scores(self, clients: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        states = [self.processes.state(client) for client in clients.tolist()]
        return np.stack([Device(self.bundle, state, policy=OPEN).scores() for state in states])


def _cohorts(said: Twin) -> list[int]:
    """Return the number of clients invited to each round, which is 0 without budgets."""
    rounds = range(said.first, said.first + len(said.answers))
    return [sum(number == asked for asked, _ in said.fates) for number in rounds]


def _default_policy(bundle: Bundle) -> str | None:
    """Return why a device with the default policy lets nothing leave, or None."""
    learning = bundle.config.learning
    assert learning is not None
    return Policy().refuses(learning.release, bundle.manifest.privacy, bundle.signed_by, learning.leaving)


def _chosen(run: Run, bundle_class: str, devices: int) -> list[int]:
    """Return the clients that rehearse: the first of the class. Raises `InputError` for too few."""
    classes = fleet_of(run, open_model(run)).classes
    if bundle_class not in classes:
        raise unknown("device class", bundle_class, classes)
    there = sorted(users_of_class(run, bundle_class))
    most = min(len(there), MOST)
    if not 1 <= devices <= most:
        raise InputError(
            f"{len(there)} users of {run.path} have a device of class {bundle_class}, and {MOST} processes are started "
            f"at most; give --rehearse a number from 1 to {most}"
        )
    specs = open_model(run).model.program.specs
    if any(spec.reset == "round" for spec in specs.values()):
        raise InputError(
            f"devices of {run.experiment.row.name} keep nothing of their user from round to round, so nothing could be "
            "measured on them after a rehearsal"
        )
    return there[:devices]


def _copied(run: Run, target: Path) -> Copy:
    shutil.copytree(run.path, target, ignore=shutil.ignore_patterns(*ELSEWHERE))
    return Copy(target)


def table(summary: dict[str, Any]) -> Sequence[tuple[str, str, str]]:
    """Return the rows of a rehearsal's table: what, simulated, measured."""
    said, happened, each = summary["simulated"], summary["happened"], summary["devices"]
    rows = [(name, f"{value:.4f}", f"{happened['metrics'][name]:.4f}") for name, value in said["metrics"].items()]

    def shown(values: list[int]) -> str:
        return ", ".join(map(str, values)) or "none"

    rows += [(f"answers of {each}, by round", shown(said["answers"]), shown(happened["answers"]))]
    rows += [("rounds withheld", shown(said["withheld_rounds"]), shown(happened["withheld_rounds"]))]
    failed = ", ".join(f"{count} {name}" for name, count in said["failures"].items()) or "none"
    rows += [("failures", failed, f"{happened['killed']} killed, {happened['late']} too late")]
    for way, what in (("up", "sent by"), ("down", "fetched by")):
        simulated_bytes, moved = (f"{part[f'bytes_{way}'] / each:,.0f}" for part in (said, happened))
        rows += [(f"bytes {what} a client", simulated_bytes, moved)]
    rows += [("seconds", f"{said['virtual_seconds']:,.1f} (virtual)", f"{happened['seconds']:,.1f}")]
    rows += [("largest difference of a shared value", "", f"{summary['largest_difference']:.2g}")]
    rows += [("a device's default policy", "", summary["default_policy"] or "lets releases leave")]
    rows += [("ended early", "", line) for line in happened["ended_early"]]
    return rows
