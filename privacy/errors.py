"""The one error a user can cause. Every room raises it; the command line prints it and exits with 2."""

import difflib
from collections.abc import Iterable

MOST = 50
"""Names that an error lists; of more, as of users, it shows a few and says how many there are."""
FEW = 5


class InputError(ValueError):
    """This says that what was asked for cannot be done. The message says what is wrong and how to mend it, in one line.

    >>> raise InputError("rounds must be at least 1, got 0")
    Traceback (most recent call last):
    privacy.errors.InputError: rounds must be at least 1, got 0
    """

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {' '.join(str(self).split())}"]


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for a name that is not in a table: says which names are near it, and lists all if they are few.

    >>> str(unknown("method", "trasnfr", ["transfr", "fedmf"]))
    "unknown method 'trasnfr'; did you mean 'transfr'? (known: fedmf, transfr)"
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    hint = "did you mean " + " or ".join(f"'{n}'" for n in near) + "? " if near else ""
    shown = names if len(names) <= MOST else [*names[:FEW], f"and {len(names) - FEW:,} more"]
    listed = f"known: {', '.join(shown)}"
    return InputError(f"unknown {what} '{name}'; {hint}({listed})" if hint else f"unknown {what} '{name}' ({listed})")
