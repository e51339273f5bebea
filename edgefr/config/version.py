"""This tells the version of the package that is installed."""

from importlib import metadata


def installed() -> str:
    """Return the version of edgefr, as pyproject.toml says it; "unknown" in a checkout that is not installed."""
    try:
        return metadata.version("edgefr")
    except metadata.PackageNotFoundError:
        return "unknown"
