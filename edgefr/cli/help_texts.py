"""Commands say in `--help` what an option is where it is not given, and no angle bracket of a text is lost there."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperGroup

SAYS_SO = re.compile(r"default|none[:;]", re.IGNORECASE)
"""A help text that says itself what holds where an option is not given."""


class Group(TyperGroup):
    """This is a group of commands whose help is whole."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, its help texts made whole; None for a name that is none."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.help = unmarked(command.help)
            for parameter in command.params:
                _complete(parameter)
        return command


def _complete(parameter: Any) -> None:
    """Mark an option that has no default as such, and keep what stands in angle brackets."""
    if parameter.param_type_name != "option":
        return
    if parameter.default is None and not parameter.required and not SAYS_SO.search(parameter.help or ""):
        parameter.show_default = "none"
    parameter.help = unmarked(parameter.help)


def unmarked(text: str | None) -> str | None:
    r"""Return a text of Markdown in which angle brackets stand for themselves.

    >>> unmarked("a folder, runs/<name>, or `<run>`")
    'a folder, runs/\\<name>, or `<run>`'
    """
    if text is None:
        return None
    parts = text.split("`")  # every other part is code, in which brackets are themselves already
    parts[::2] = [re.sub(r"(?<!\\)<", r"\\<", part) for part in parts[::2]]
    return "`".join(parts)
