"""`edgefr`: the commands, and what their endings mean: 0 done, 1 our fault, 2 the input is wrong, 130 interrupted."""

from __future__ import annotations

import sys

import click
import typer
from rich.console import Console

from edgefr.cli.devices import devices
from edgefr.cli.encoder import distill, pretrain
from edgefr.cli.export import export
from edgefr.cli.recommend import recommend
from edgefr.cli.simulate import simulate
from privacy.errors import InputError

app = typer.Typer(
    name="edgefr",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Try federated, private, on-device recommendation on a simulated fleet of real devices, then ship exactly "
    "what was simulated.\n\nStart with: [bold]edgefr simulate --devices devices.yaml[/bold]",
)
for command in (simulate, export, recommend, devices, distill, pretrain):
    app.command()(command)


def main() -> None:
    """Run the command line; never shows a traceback for what a user can mend."""
    console = Console(stderr=True, soft_wrap=True)
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        console.print(f"[bold red]error:[/bold red] {_plain(str(error))}")
        code = 2
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = 2
    except click.ClickException as error:
        console.print(f"[bold red]error:[/bold red] {_plain(error.format_message())}")
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        console.print("interrupted: what was finished is kept, nothing is half written")
        code = 130
    except BrokenPipeError:
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _plain(message: str) -> str:
    return message.replace("[", r"\[")


if __name__ == "__main__":
    main()
