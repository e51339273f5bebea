"""Objects go to other processes of this machine through shared memory: small parts as bytes, big arrays once.

No file is written, and only processes started by this one open a segment.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import torch

from privacy.errors import InputError

SMALL = 4096
"""Arrays of fewer bytes travel with the rest of the object."""

_ALIGN = 64


@dataclass(frozen=True)
class Segment:
    """This is a packed object: `stream` needs the buffers at `places` (first, last + 1) of the memory `segment`."""

    stream: bytes
    segment: str
    places: Sequence[tuple[int, int]]


class Shelf:
    """This is a place in shared memory for one object at a time; `put` replaces the object before.

    Readers must be done with the old object first. `name`: prefix of segments that another process may have to end
    (`end_named`).

    >>> shelf = Shelf()
    >>> import numpy as np
    >>> SegmentReader().get(shelf.put({"rows": np.arange(3)}))["rows"].tolist()
    [0, 1, 2]
    >>> shelf.clear()
    """

    def __init__(self, name: str | None = None) -> None:
        self.memory: SharedMemory | None = None
        self.name, self.made = name, 0

    def put(self, thing: Any) -> Segment:
        """Pack `thing`; arrays and CPU tensors of at least `SMALL` bytes are copied to the segment.

        Raises `InputError` when the machine has too little shared memory.
        """
        stream, buffers = packed(thing)
        places, end = [], 0
        for buffer in buffers:
            places.append((end, end + buffer.nbytes))
            end += -(-buffer.nbytes // _ALIGN) * _ALIGN
        memory = self._room(max(end, 1))
        room = memory.buf
        assert room is not None  # it is None after close() alone
        for (first, last), buffer in zip(places, buffers, strict=True):
            room[first:last] = buffer
        return Segment(stream, memory.name, places)

    def _room(self, size: int) -> SharedMemory:
        if self.memory is None or self.memory.size < size:
            self.clear()
            _check_space(size)
            self.made += 1
            name = None if self.name is None else f"{self.name}.{self.made}"
            room = size if self.made == 1 else size + size // 4  # what grows once is not going to stop
            self.memory = SharedMemory(name, create=True, size=room)
        return self.memory

    def clear(self) -> None:
        """Give the memory back; processes that still read it keep their view."""
        if self.memory is not None:
            self.memory.close()
            self.memory.unlink()
            self.memory = None


def end_named(name: str, seen: int) -> None:
    """End what a dead process left on a named shelf; it may have made one segment more than `seen`."""
    for number in (seen, seen + 1):
        try:
            memory = SharedMemory(f"{name}.{number}")
        except FileNotFoundError:
            continue
        memory.close()
        memory.unlink()


class SegmentReader:
    """A reader opens segments in another process; their arrays are views: read them, do not write."""

    def __init__(self) -> None:
        self.open: list[SharedMemory] = []

    def get(self, segment: Segment) -> Any:
        """Return the object of a segment."""
        memory = next((m for m in self.open if m.name == segment.segment), None)
        if memory is None:
            memory = SharedMemory(segment.segment)
            self.open.append(memory)
        room = memory.buf
        assert room is not None  # it is None after close() alone
        return pickle.loads(segment.stream, buffers=[room[a:b] for a, b in segment.places])  # noqa: S301 (our own)

    def keep(self, segments: Sequence[Segment]) -> None:
        """Close all segments but those of `segments`; the objects of the others must have been dropped."""
        names = {segment.segment for segment in segments}
        gone = [memory for memory in self.open if memory.name not in names]
        if not all([self._closed(memory) for memory in gone]):
            gc.collect()  # objects in reference cycles hold their views until then
            for memory in gone:
                if memory in self.open:
                    self._closed(memory)

    def _closed(self, memory: SharedMemory) -> bool:
        try:
            memory.close()
        except BufferError:
            return False
        self.open.remove(memory)
        return True


def packed(thing: Any) -> tuple[bytes, list[memoryview]]:
    """Return an object as bytes and, set aside, the contents of its big arrays and tensors."""
    buffers: list[memoryview] = []

    def aside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SMALL:
            return True  # keep it in the stream
        buffers.append(raw)
        return False

    return _pickled(thing, aside), buffers


def sealed(thing: Any) -> bytes:
    """Return an object as bytes with everything inside, for a pipe; `pickle.loads` opens it."""
    return _pickled(thing, None)


def _pickled(thing: Any, aside: Callable[[pickle.PickleBuffer], bool] | None) -> bytes:
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=aside).dump(thing)
    return stream.getvalue()


class _Pickler(pickle.Pickler):
    """This serialises tensors as arrays, whose contents can be set aside."""

    def reducer_override(self, thing: Any) -> Any:
        if type(thing) is torch.Tensor and thing.device.type == "cpu" and not thing.requires_grad:
            return torch.from_numpy, (thing.contiguous().numpy(),)
        return NotImplemented


def _check_space(size: int) -> None:
    """Raise `InputError` where shared memory is short: a missing page kills a process at its first write."""
    if not os.path.isdir("/dev/shm"):
        return
    free = shutil.disk_usage("/dev/shm").free
    if size > free:
        raise InputError(
            f"executor processes needs {size / 1e6:.0f} MB of shared memory, {free / 1e6:.0f} MB are free: "
            "give /dev/shm more room (docker run --shm-size=...), or use executor inline"
        )
