"""`edgefr` is the command line. Its commands end with 0 done, 1 our fault, 2 the input is wrong, 130 interrupted."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Annotated, Any, TextIO, cast

import typer
from rich.console import Console
from rich.markup import escape

import edgefr
from edge.limited_process import NOW, is_no_memory, no_memory
from edgefr.cli.commands import Commands
from edgefr.cli.output import printable
from privacy.errors import InputError
from privacy.extras import asked_for
from privacy.machine import spare_memory

app = typer.Typer(name="edgefr", cls=Commands, pretty_exceptions_enable=False, rich_markup_mode="markdown")

# Typer brings its own click or depends on it, by version; its base error is reached without naming either.
CommandLineError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[2])


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Try federated, private, on-device recommendation on a simulated fleet of devices, then ship what was simulated.

    Start with: `edgefr simulate --devices devices.yaml`
    """
    if version:
        typer.echo(f"edgefr {edgefr.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


STDERR = 2
MENDABLE = frozenset(
    getattr(errno, name)
    for name in (
        *("EACCES", "EDQUOT", "EIO", "ELOOP", "EMFILE", "ENAMETOOLONG"),
        *("ENFILE", "ENOSPC", "ENOTDIR", "EPERM", "EROFS"),
    )
    if hasattr(errno, name)
)
"""What a disk or a system says that whoever started the command can mend, and no code of ours."""


class _Listened(io.FileIO):
    """An open file whose reader may leave: from then on what is written goes nowhere, and the command goes on.

    Raises `InputError` at the first write that fails for another reason, such as a full disk.
    """

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError) or self.fileno() == STDERR:  # where else could it be told?
                return super().write(content)
            raise InputError(f"cannot write the output: {error.strerror}") from error


def main() -> None:
    """Run the command line; never shows a traceback for what a user can mend."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for them reads every installed package
    for name in ("COLUMNS", "LINES"):
        if not os.environ.get(name, "").strip("0"):  # a terminal of no size shows nothing, not even an error
            os.environ.pop(name, None)
    with redirect_stdout(_listened(sys.stdout)), redirect_stderr(_listened(sys.stderr)):
        try:
            code = _run()
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            except InputError as error:  # what was held back finds no room
                code = _refuse(str(error))
    sys.exit(code)


def _listened(stream: TextIO | None) -> TextIO:
    """Return the stream, or where it is no terminal one to the same place that nobody has to read.

    A character that its encoding lacks (Windows' of pipes has no epsilon) is written as '?'.
    """
    if stream is None:  # closed before we were started
        return io.StringIO()
    if stream.isatty():
        return stream
    raw = _Listened(stream.fileno(), "w", closefd=False)
    errors = "replace" if stream.errors == "strict" else stream.errors
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=stream.encoding, errors=errors, line_buffering=True)


def _run() -> int:
    """Run the command and return its exit code."""
    code = 0
    try:
        code = app(prog_name="edgefr", standalone_mode=False)
        sys.stdout.flush()
    except InputError as error:
        code = _refuse(str(error))
    except CommandLineError as error:
        code = _refuse(_with_help(error))
    except ModuleNotFoundError as error:
        if (needs := asked_for(error)) is None:
            raise
        code = _refuse(str(needs))
    except OSError as error:
        if is_no_memory(error):
            return _refuse(no_memory())
        if error.errno not in MENDABLE:
            raise
        what = "" if error.filename is None else f"cannot use {error.filename}: "
        code = _refuse(f"{what}{error.strerror}; fix that and repeat the command")
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BaseException as error:  # a library's own panic is no Exception
        if not is_no_memory(error):
            raise
        code = _refuse(no_memory())
    if code == 130:
        _tell("interrupted: finished work is kept, and no file is half written")
    return code if isinstance(code, int) else 0


def _refuse(message: str) -> int:
    """One line on stderr, whatever the message holds; what a terminal would act on is shown as '?'."""
    if NOW.ram_mb is not None:
        spare_memory()
    _tell(f"[bold red]error:[/bold red] {escape(printable(' '.join(message.split())))}")
    return 2


def _with_help(error: typer.BadParameter) -> str:
    """Return a usage error and where to read on."""
    context = getattr(error, "ctx", None)
    command = "edgefr" if context is None else context.command_path
    return f"{error.format_message().rstrip('.')}; see {command} --help"


def _tell(line: str) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(line)
