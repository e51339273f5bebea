"""The package ships its version, and files for those of the same name that the working folder does not have."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path


def shipped(name: Path) -> Path:
    """Return the file or folder of this name that ships: within the installed package, or at the top of the sources.

    >>> shipped(Path("devices.yaml")).is_file()
    True
    """
    package = Path(__file__).parents[1]
    return next((place / name for place in (package, package.parent) if (place / name).exists()), name)


def installed() -> str:
    """Return the version of edgefr, as pyproject.toml says it; "unknown" in a checkout that is not installed."""
    try:
        return metadata.version("edgefr")
    except metadata.PackageNotFoundError:
        return "unknown"
