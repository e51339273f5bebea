"""Where the public archives are, for tests that need them."""

from tests.data.conftest import archives

__all__ = ["archives"]
