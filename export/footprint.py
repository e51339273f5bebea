"""This measures how much memory a bundle takes, in a fresh process of the device's own code (`export/probe.py`).

Owns: starting that process, and keeping what it found. Does not own: what a device class has (`export.variants`).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from privacy.errors import InputError
from privacy.files import sha256_of, write_json

SECONDS = 120  # a process that takes longer is not measured
PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True)
class Footprint:
    """This is the peak memory of a process, MB (10^6 bytes):

    with numpy and onnxruntime alone, and what the bundle added.
    """

    bare_mb: float
    grown_mb: float


def measure(bundle: Path) -> Footprint | None:
    """Measure the footprint of a bundle on this host; None where it cannot be measured."""
    above = str(Path(__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (above, os.environ.get("PYTHONPATH"))))}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(PROBE), str(bundle)],
            capture_output=True,
            env=environment,
            timeout=SECONDS,
            check=True,
        )
        return Footprint(**json.loads(done.stdout))
    except (OSError, ValueError, TypeError, subprocess.SubprocessError):
        return None


class Footprints:
    """These are footprints by content, kept in a JSON file:

    a bundle is measured once per host and version of the libraries.
    """

    def __init__(self, path: Path, measured: Callable[[Path], Footprint | None] = measure) -> None:
        self._path, self._measure = path, measured

    def of(self, files: Mapping[str, str], make: Callable[[], Path]) -> Footprint | None:
        """Return the footprint of these files (sha256 by name); `make` writes the bundle when it has to be measured."""
        known, key = self._read(), self._key(files)
        if key not in known:
            found = self._measure(make())
            if found is None:
                return None
            known[key] = asdict(found)
            try:
                write_json(self._path, known)
            except InputError:
                return found  # nowhere to keep it: it is measured again the next time
        return Footprint(**known[key])

    def _read(self) -> dict[str, dict[str, float]]:
        """Read what was saved; a file that is damaged counts as empty."""
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            return {key: asdict(Footprint(float(v["bare_mb"]), float(v["grown_mb"]))) for key, v in kept.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _key(self, files: Mapping[str, str]) -> str:
        import numpy

        from edge.ort import ort

        where = [platform.platform(), platform.node(), sys.version, numpy.__version__, ort.__version__]
        where.append(sha256_of(PROBE))
        return hashlib.sha256(json.dumps([sorted(files.items()), where]).encode()).hexdigest()
