"""Texts come from archives, from people's files and from other programs, and are shown on terminals and pages."""

from __future__ import annotations


def plain(text: str) -> str:
    r"""Return a text on one line, without what is no sign to be shown: a terminal would act on it, or no file takes it.

    >>> plain("Heat\t(1995)\n"), plain("\x1b]0;title\x07Heat \ud800")
    ('Heat (1995)', ']0;titleHeat')
    """
    if text.isprintable():
        return text
    return " ".join("".join(c for c in text if c.isprintable() or c.isspace()).split())
