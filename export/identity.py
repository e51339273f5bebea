"""A thing has one digest that says all that it computes: its values, and the classes and functions in it.

    program, phase, ... → every value, tensor, class and function in it → digest
                          anything that our code and packages of a known version do not decide → None

Whoever keeps what was made of a thing asks for its identity, and keeps nothing of one that has none: a plug-in's class,
a function that was put in another's place.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Set
from enum import Enum
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch

from privacy.files import sha256_of
from privacy.table import Table

OURS = ("cloud", "edge", "edgefr", "export", "privacy")
"""Our packages, whose files are read."""

ABOVE = frozenset({"cli", "fleet", "metrics", "report", "serving", "simulation", "studies"})
"""Rooms of edgefr that no program runs anything of: their files are not read. A new room counts until it is here."""

PACKAGES = ("numpy", "onnx", "onnxruntime", "onnxscript", "pydantic", "tokenizers", "torch", "transformers")
"""Packages whose version stands for their code."""

_KNOWN = frozenset({*OURS, *PACKAGES, *sys.stdlib_module_names})


class UnknownIdentity(Exception):
    """Something that decides what a thing computes cannot be told."""


def identity(*things: Any) -> str | None:
    """Return the digest of things and of all code that they may run; None where that cannot be told.

    >>> identity(1, "a") == identity(1, "a") != identity(1, "b")
    True
    >>> identity(object()) is None
    True
    """
    told = _Told()
    try:
        for thing in things:
            told.tell(thing)
        _check_nothing_is_replaced()
    except (UnknownIdentity, RecursionError):
        return None
    said = [told.found.hexdigest(), *_code(), *((name, version(name)) for name in PACKAGES)]
    return sha256("\n".join(map(str, said)).encode()).hexdigest()


class _Told:
    def __init__(self) -> None:
        self.found = sha256()
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no number is given twice

    def tell(self, thing: Any) -> None:
        if thing is None or isinstance(thing, bool | int | float | complex | str | bytes):
            self._say(type(thing).__name__, repr(thing))
        elif id(thing) in self.seen:
            self._say("again", self.seen[id(thing)])
        else:
            self.seen[id(thing)] = len(self.seen)
            self.kept.append(thing)
            self._tell_new(thing)

    def _tell_new(self, thing: Any) -> None:
        if isinstance(thing, torch.Tensor):
            if thing.layout != torch.strided or thing.is_quantized:
                raise UnknownIdentity(thing.layout)
            value = thing.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
            self._bytes(("tensor", type(thing).__name__, thing.dtype, tuple(thing.shape), thing.requires_grad), value)
        elif isinstance(thing, np.ndarray | np.generic) and thing.dtype != object:
            self._bytes(("array", thing.dtype.str, thing.shape), np.ascontiguousarray(thing))
        elif isinstance(thing, type | FunctionType | BuiltinFunctionType | MethodType | partial):
            self._tell_code(thing)
        elif isinstance(thing, torch.dtype | torch.device | Path | Enum):
            self._say(type(thing).__name__, thing)
        elif isinstance(thing, Mapping):
            self._tell_all(thing, (part for pair in thing.items() for part in pair))
        elif isinstance(thing, list | tuple):
            self._tell_all(thing, thing)
        elif isinstance(thing, Set):
            self._tell_all(thing, sorted(thing, key=repr))
        else:
            self._tell_object(thing)

    def _tell_all(self, whole: Any, parts: Iterable[Any]) -> None:
        self._tell_class(type(whole))
        self._say("of", len(whole))
        for part in parts:
            self.tell(part)

    def _tell_object(self, thing: Any) -> None:
        self._tell_class(type(thing))
        slots = [name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())]
        state = {name: getattr(thing, name) for name in slots if name != "__dict__" and hasattr(thing, name)}
        if not state and not hasattr(thing, "__dict__"):
            raise UnknownIdentity(type(thing))
        for name, value in sorted((state | getattr(thing, "__dict__", {})).items()):
            self._say("has", name)
            self.tell(value)

    def _tell_code(self, thing: Any) -> None:
        if isinstance(thing, type):
            self._tell_class(thing)
        elif isinstance(thing, MethodType):
            self._tell_all((), (thing.__func__, thing.__self__))
        elif isinstance(thing, partial):
            self._tell_all((), (thing.func, thing.args, thing.keywords))
        else:
            _check_known(thing)
            self._say("function", f"{thing.__module__}.{thing.__qualname__}")
            if isinstance(thing, FunctionType):
                self._code(thing.__code__)
                self.tell(thing.__defaults__)
                self.tell(thing.__kwdefaults__)
                for cell in thing.__closure__ or ():
                    self.tell(cell.cell_contents)

    def _code(self, code: CodeType) -> None:
        """Tell which function of its file a code is: the file itself is among all that are read."""
        self._say("code", f"{code.co_name} {code.co_firstlineno} {code.co_code.hex()}")

    def _tell_class(self, cls: type) -> None:
        for each in cls.__mro__:
            _check_known(each)
            for value in vars(each).values() if _top(each) in OURS else ():
                if isinstance(value, FunctionType):
                    _check_known(value)
        self._say("class", f"{cls.__module__}.{cls.__qualname__}")

    def _bytes(self, said: tuple[Any, ...], value: Any) -> None:
        self._say(*said)
        self.found.update(value.tobytes())

    def _say(self, *words: Any) -> None:
        self.found.update("\x1f".join(map(str, words)).encode() + b"\x1e")


def _top(thing: Any) -> str:
    return str(getattr(thing, "__module__", None) or "").partition(".")[0]


def _check_known(thing: Any) -> None:
    if _top(thing) not in _KNOWN:
        raise UnknownIdentity(thing)


def _check_nothing_is_replaced() -> None:
    """Raise `UnknownIdentity` where a function of one of our modules was put there by a plug-in or an onlooker."""
    installed = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib"))
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in OURS:
            for value in list(vars(module).values()):
                for entry in value.registered() if isinstance(value, Table) else ():
                    _check_entry(entry)
                replaced = isinstance(value, FunctionType) and _top(value) not in _KNOWN
                if replaced and not value.__code__.co_filename.startswith(installed):
                    raise UnknownIdentity(value)


def _check_entry(entry: Any) -> None:
    """Raise `UnknownIdentity` for an entry of a table that a plug-in added: programs look it up by name as they run."""
    for part in (entry, *getattr(entry, "__dict__", {}).values()):
        part = part.func if isinstance(part, partial) else part
        _check_known(part if isinstance(part, type | FunctionType) else type(part))


@cache
def _code() -> list[tuple[str, str]]:
    """Return name and digest of every file that a program may run something of."""
    found = []
    for name in OURS:
        spec = importlib.util.find_spec(name)
        for folder in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
            paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*.py"))}
            found += [
                (f"{name}/{inside.as_posix()}", sha256_of(path))
                for inside, path in paths.items()
                if name != "edgefr" or inside.parts[0] not in ABOVE
            ]
    return found
