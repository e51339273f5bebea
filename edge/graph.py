"""This runs one ONNX graph in onnxruntime: CPU, one thread, tensors by name."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edge.graph_check import check_graph
from edge.limited_process import under
from edge.verified_files import mapped, read
from privacy.errors import InputError
from privacy.machine import memory_bytes

if TYPE_CHECKING:
    from edge.manifest import File

MEMORY = 2 << 30
"""Bytes that all graphs of a process may take together, at most; half of the machine's memory where that is less."""

MOST_BYTES = 1 << 30  # of a graph without its weights
LINE = 300  # characters of onnxruntime's complaint that are shown
KINDS = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
}


Entry = Callable[[Path], "File | None"]
"""Says what the manifest says of a file, which what is loaded has to be; None: nothing."""


def unlisted(path: Path) -> None:
    """Return nothing: no manifest lists the file."""


class Graph:
    """This is a loaded graph. `inputs` maps each input's name to its shape, where a text stands for any size.

    `data`: the one file beside it that its tensors may lie in. `entry`: says of a file what its manifest does, and
    onnxruntime is given these bytes, no path. Raises `InputError`, before onnxruntime sees it, for a graph that refers
    to another file or has what no graph of ours has, and for one that does not load.
    """

    def __init__(self, path: Path, data: Path | None = None, entry: Entry = unlisted) -> None:
        from edge.ort import ort

        if data is not None and data.parent != path.parent:
            raise InputError(f"{path} and its weights {data} must lie in one folder; export again")
        content = read(path, entry(path), MOST_BYTES)
        try:
            loading = check_graph(content, None if data is None else data.name)
            weights = memoryview(b"" if data is None else mapped(data, entry(data)))
            arrays = {name: tensor.of(name, weights) for name, tensor in loading.outside.items()}
        except (IndexError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} is no graph for a device: {error}; export again, or do not use it") from error
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what it complains of is in the one error that is raised
        if bounded():
            options.add_session_config_entry("session.use_env_allocators", "1")
        options.enable_mem_pattern = False  # from the second call on, onnxruntime 1.17 lets tensors overlap with it
        try:
            if arrays:
                values = [ort.OrtValue.ortvalue_from_numpy(array) for array in arrays.values()]
                options.add_external_initializers(list(arrays), values)
            self._session = ort.InferenceSession(
                content,
                options,
                providers=["CPUExecutionProvider"],
                # else what depends on no input is computed in every run, and not while it loads
                disabled_optimizers=None if loading.small else ["ConstantFolding"],
                enable_fallback=0,  # to try again, with a line of its own, what has failed
            )
        except Exception as error:  # onnxruntime's errors have no common class of their own
            raise InputError(
                f"{path} does not load in onnxruntime {ort.__version__}{under()}: {_line(error)}"
            ) from error
        self.path, self._options, self._weights = path, ort.RunOptions, arrays
        self.inputs: dict[str, list[int | str]] = {i.name: i.shape for i in self._session.get_inputs()}
        self._types = {i.name: KINDS.get(i.type) for i in self._session.get_inputs()}
        self.outputs = [o.name for o in self._session.get_outputs()]

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """Return the graph's one output for these inputs; `InputError` as `run_all`, and for a graph of several."""
        if len(self.outputs) != 1:
            raise InputError(f"{self.path} has {len(self.outputs)} outputs instead of one; export again")
        output: npt.NDArray[np.float32] = self.run_all(feeds)[self.outputs[0]]
        return output

    def run_all(self, feeds: Mapping[str, npt.NDArray[Any]], stop: Stop | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return all outputs by name. `stop` is asked while the graph runs too, and ends it.

        Raises `InputError` that names an input of wrong shape or type, for whatever onnxruntime complains of, and
        `Stopped` for a run that was ended: by `stop`, or after `LONGEST_S` seconds.
        """
        for name, shape in self.inputs.items():
            if name not in feeds:
                raise InputError(f"{self.path} needs input {name}, which the bundle does not have; export again")
            array = feeds[name]
            same = [want if isinstance(want, int) else got for want, got in zip(shape, array.shape, strict=False)]
            if array.ndim != len(shape) or list(array.shape) != same or array.dtype != self._types[name]:
                raise InputError(f"{self.path}: {name} is {array.dtype} {list(array.shape)} instead of {shape}")
        run = WATCH.begin(self._options(), stop)
        try:
            results = self._session.run(None, {name: feeds[name] for name in self.inputs}, run.options)
        except Exception as error:  # onnxruntime's errors have no common class of their own
            if run.reason is None:
                # What onnxruntime says may hold values of private data, so nobody is shown it: no chain either.
                raise InputError(f"{self.path} fails in onnxruntime{under()}; do not use this bundle") from None
            limit = "its limit" if stop is not None else f"{LONGEST_S:g} s"
            raise Stopped(f"{self.path} was ended: {run.reason} above {limit}", run.reason) from error
        finally:
            WATCH.end(run)
        return dict(zip(self.outputs, results, strict=True))


@cache
def bounded() -> bool:
    """Give graphs one allocator for all, with an end; say whether this onnxruntime can."""
    from edge.ort import ort

    with suppress(Exception):  # onnxruntime's errors have no common class of their own
        where = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
        most = min(MEMORY, memory_bytes() // 2)
        how = ort.OrtArenaCfg({"max_mem": most, "arena_extend_strategy": 1})  # 1: as much as is asked for
        ort.create_and_register_allocator(where, how)
        return True
    return False


def _line(error: Exception) -> str:
    said = (str(error).splitlines() or ["?"])[0][:LINE]
    return "".join(c if c.isprintable() else "?" for c in said)


EVERY_S = 0.05
LONGEST_S = 600.0
"""Seconds that one call of a graph may take where nobody has set a limit."""

IDLE = 20  # looks at nothing before the thread sleeps
Stop = Callable[[], str | None]
"""Says why work should end now ("time", "memory"), or None."""


class Stopped(InputError):
    """A graph was ended while it ran. `reason`: what was exceeded, "time" or "memory"."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Run:
    """This is one call of a graph: the options that onnxruntime is given, and why it was ended, if it was."""

    __slots__ = ("began", "options", "reason", "stop")

    def __init__(self, options: Any, stop: Stop | None) -> None:
        self.options, self.stop = options, stop
        self.began = time.monotonic()
        self.reason: str | None = None

    def look(self, now: float) -> None:
        """End the run if it has taken too long or what it was given says so."""
        reason = "time" if now - self.began > LONGEST_S else None if self.stop is None else self.stop()
        if reason is not None:
            self.reason = reason
            self.options.terminate = True


class Watch:
    """This is the one thread, and the runs that it looks at every 50 ms; it sleeps while no graph runs.

    A graph that never ends has no step after it, so what ends a run is `RunOptions.terminate`, which onnxruntime looks
    at before every node.
    """

    def __init__(self) -> None:
        self._runs: set[Run] = set()
        self._awake, self._starting = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, options: Any, stop: Stop | None = None) -> Run:
        """Look at a run from now on, by its `RunOptions` and what may end it; it must be handed to `end`."""
        self.start()
        run = Run(options, stop)
        self._runs.add(run)
        if not self._awake.is_set():
            self._awake.set()
        return run

    def end(self, run: Run) -> None:
        """Look at a run no longer."""
        self._runs.discard(run)

    def start(self) -> None:
        """Start the thread that looks, where there is none: under a limit of memory, before anything is charged."""
        if self._thread is not None:
            return
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._look, name="edgefr-watch", daemon=True)
                thread.start()
                self._thread = thread

    def _look(self) -> None:
        idle = 0
        while True:
            self._awake.wait()
            time.sleep(EVERY_S)
            runs, now = self._runs.copy(), time.monotonic()
            for run in runs:
                try:
                    run.look(now)
                except Exception:  # who runs the graph asks again between steps, and is told there
                    self._runs.discard(run)
            idle = 0 if runs else idle + 1
            if idle > IDLE:
                self._awake.clear()
                if self._runs:  # one came between
                    self._awake.set()


WATCH = Watch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WATCH.__init__)  # type: ignore[misc]  # no thread lives on in a child
