"""Keys of two publishers, for all tests of a device."""

from pathlib import Path

import pytest

from export.sign import generate


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two key pairs: mine/ and other/."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "other"):
        generate(folder / name)
    return folder
