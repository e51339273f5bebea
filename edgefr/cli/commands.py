"""A command of `edgefr` is imported when it is asked for; its help says what holds where no option is given."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from privacy.extras import check_extras

PANELS: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "First": {
        "data": ("data", ()),
        "simulate": ("simulate", ("cloud",)),
        "compare": ("compare", ("cloud",)),
        "report": ("compare", ("cloud",)),
        "export": ("export", ("cloud",)),
    },
    "Research": {
        "methods": ("methods", ()),
        "sweep": ("sweep", ("cloud",)),
        "tune": ("sweep", ("cloud",)),
        "reproduce": ("reproduce", ("cloud",)),
        "distill": ("encoder", ("cloud",)),
        "pretrain": ("encoder", ("cloud",)),
    },
    "Privacy": {
        "privacy": ("privacy", ("cloud",)),
        "audit": ("privacy", ("cloud",)),
        "forget": ("forget", ("cloud",)),
    },
    "Devices and bundles": {
        "devices": ("devices", ()),
        "cost": ("cost", ()),
        "calibrate": ("cost", ()),
        "bundle": ("bundle", ()),
        "recommend": ("recommend", ()),
        "explain": ("recommend", ()),
        "conformance": ("conformance", ()),
    },
    "Rounds with real devices": {
        "serve": ("serve", ("cloud", "serve")),
        "enrol": ("serve", ("cloud",)),
        "demo": ("demo", ("cloud", "serve")),
        "device": ("join", ()),
    },
}
"""The panels of the help in their order, and the commands of each: the module in `edgefr.cli` that has an object of its
name, and its extras.

A command that needs an extra for some of its input only has none here: what it imports says so itself.
"""
HOMES = {name: home for panel in PANELS.values() for name, home in panel.items()}
"""Every command in the order of the help, as its panel has it."""


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


class Commands(Group):
    """This is the group of all commands, each made at the first look at it."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(HOMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; None for a name that is none, once all are made, since like ones are looked for."""
        for name in (cmd_name,) if cmd_name in HOMES else HOMES:
            if name not in self.commands:
                self.commands[name] = command = made(name)
                command.rich_help_panel = next(title for title, own in PANELS.items() if name in own)
        return super().get_command(ctx, cmd_name)


def made(name: str) -> Any:
    """Make a command of what its module has: a function, or a group of commands."""
    home, extras = HOMES[name]
    found = getattr(import_module(f"edgefr.cli.{home}"), name)
    if isinstance(found, typer.Typer):
        return _needing(get_group(found), extras)
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name)(with_plugins(found))
    return _needing(get_command(alone), extras)


def _needing(command: Any, extras: tuple[str, ...]) -> Any:
    """Return the command, or the group of commands, refused without its extras once its arguments are read."""
    for one in getattr(command, "commands", {}).values():
        _needing(one, extras)
    if not hasattr(command, "commands"):  # a group reads the arguments of its commands, and shows their help
        command.invoke = functools.partial(_invoke, command.invoke, extras)
    return command


def _invoke(invoke: Callable[[Any], Any], extras: tuple[str, ...], context: Any) -> Any:
    check_extras(*extras)
    return invoke(context)


def with_plugins(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with one more option, `--plugin`: its modules are imported before anything is read."""

    @functools.wraps(command)
    def run(*arguments: Any, plugin: list[str] | None = None, **options: Any) -> Any:
        for name in plugin or []:
            from edgefr.config.plugins import load

            load(name)
        return command(*arguments, **options)

    option = typer.Option(metavar="MODULE", help="A module or .py file of your own, with methods, metrics, rules, ...")
    signature = inspect.signature(command, eval_str=True)
    own = inspect.Parameter(
        "plugin", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, option]
    )
    shown = signature.replace(parameters=[*signature.parameters.values(), own])
    run.__signature__ = shown  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in shown.parameters.items()}
    return run
