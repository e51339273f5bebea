"""Devices of a rehearsal are processes of this host: `edgefr device enrol`, then `edgefr device join` to the end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from privacy.files import write_atomic

COMMAND = (sys.executable, "-m", "edgefr", "device")
POLICY = "unprotected: true\nsigned: false\ntrust: central\nepsilon: 1.0e+6\nleast_noise: 1.0e-6\nleast_cohort: 1\n"
"""What rehearsing devices let leave: their data are the run's own, and it is the rounds that are looked at."""


@dataclass(frozen=True)
class DeviceStart:
    """A device's start: its user, address, one-time code and item ids."""

    user: str
    client: int
    url: str
    code: str
    items: list[str]


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

    def start(self, seat: DeviceStart) -> None:
        """Start a device, which goes on by itself."""
        self.threads.append(threading.Thread(target=self._live, args=(seat,), daemon=True))
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

    def _live(self, seat: DeviceStart) -> None:
        own, policy = self.folder / f"{seat.client}.txt", self.folder / f"{seat.client}.yaml"
        write_atomic(own, "item\n" + "\n".join(seat.items) + "\n")
        write_atomic(policy, POLICY)
        where = (str(self.bundle), "--state", str(self.state(seat.client)), "--url", seat.url)
        enrolled = self._done(seat.user, ["enrol", *where, "--code", seat.code, "--policy", str(policy)])
        while enrolled and not self._done(seat.user, ["join", *where, "--interactions", str(own)]):
            if seat.user in self.failed or self.stopping:
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
