"""Names of modules are handed on, and each module is imported when it is first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def face(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that hands on each name from the module that `homes` says.

    >>> face("edgefr.fleet", {"load_fleet": "edgefr.fleet.spec"})("load_fleet").__name__
    'load_fleet'
    """

    def handed_on(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(importlib.import_module(homes[name]), name)

    return handed_on


class Later:
    """This stands for a module that takes long to import, until something of it is asked for.

    >>> Later("json").dumps([1])
    '[1]'
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)
