"""Uploads reach the server of a run in one of three ways, which is recorded with every round and said at its end.

Under central trust the noise is added to the sum, by the server. So an epsilon is stated only where uploads were summed
under masks, or where somebody was named who is trusted with single ones. Sealed or not, it holds against whoever sees
the broadcasts: the server, which adds the noise, knows the exact total. What holds against the server too is local
trust, whose devices add the noise themselves; noise in parts, of which only the sum is enough, is not built.

Owns: these words and that rule. Does not own: sums (`sealing`), what a release costs (`privacy`).
"""

from __future__ import annotations

from dataclasses import dataclass

from privacy.errors import InputError
from privacy.trust import Trust


@dataclass(frozen=True)
class Collecting:
    """This says how uploads are collected.

    `sealed`: under the masks of a secure sum. `trusted`: the name of whom clients trust with single uploads.

    >>> Collecting(sealed=True).said, Collecting().said
    ('sealed by secure aggregation', 'the server sees uploads')
    """

    sealed: bool = False
    trusted: str | None = None

    @property
    def said(self) -> str:
        """Say it, for terminals and summaries."""
        if self.sealed:
            return "sealed by secure aggregation"
        return "the server sees uploads" + (
            "" if self.trusted is None else f" and is trusted with them: {self.trusted}"
        )

    def check(self, trust: Trust) -> None:
        """Raise `InputError` for a name that changes nothing, or that nobody could read."""
        if self.trusted is None:
            return
        if self.sealed or trust.sees_uploads:
            why = "the server sees no upload" if self.sealed else f"under {trust.name} trust nobody needs to be trusted"
            raise InputError(f"nothing reads --trusted-server {self.trusted!r}: {why}; drop it")
        if not self.trusted.strip() or not self.trusted.isprintable():
            raise InputError("--trusted-server names whom clients trust with their uploads: give a name")

    def adversary(self, trust: Trust) -> str:
        """Say against whom noise protects a client."""
        if trust.sees_uploads:
            return "the server, which sees sums of noised uploads" if self.sealed else trust.adversary
        if self.sealed:
            return "observers of the broadcasts; the server, which adds the noise, sees each round's exact total"
        if self.trusted is not None:
            return f"observers of the broadcasts; {self.trusted} is trusted with single uploads"
        return "nobody: the server sees uploads without noise, and nobody was named who is trusted with them"


SEEN = Collecting()
"""Uploads come as they are, to a server that nobody named."""
