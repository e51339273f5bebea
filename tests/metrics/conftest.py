"""The public archives, as in the tests of the data room."""

from tests.data.conftest import archives

__all__ = ["archives"]
