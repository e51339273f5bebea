"""The page of the command line is what Typer writes of the commands, so it says what `--help` says."""

from __future__ import annotations

import re
import subprocess
import sys

ABOUT = """# Command line

Made from the commands themselves: it says what `--help` says. Exit codes: 0 done, 2 the input is wrong (one line says
what and how to mend it), 1 a fault of ours, 130 interrupted.

"""


def commands_page() -> str:
    """Return the page of all commands with their arguments, options and defaults."""
    made = [sys.executable, "-m", "typer", "edgefr.cli.app", "utils", "docs", "--name", "edgefr"]
    text = subprocess.run(made, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    text = text.replace("; default: (none)]", "]").replace("  [default: (none)]", "").replace("default: (none); ", "")
    text = re.sub(r"^\* `--help`: .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\*\*(\w+)\*\*:$", r"**\1**", text, flags=re.MULTILINE)
    first = dict(re.findall(r"^#+ `(edgefr [^`]+)`\n\n([^\n]*(?:\n[^\n]+)*)", text, flags=re.MULTILINE))
    parts = re.split(r"^(?=##+ `)", text, flags=re.MULTILINE)
    text = "".join(listed(part, first) for part in parts)
    return ABOUT + re.sub(r"^# `edgefr`$", "## `edgefr`", text, flags=re.MULTILINE)


def listed(part: str, first: dict[str, str]) -> str:
    """Return a group's part of the page whose list of commands says in full what each does, and leads to it."""
    group = part.split("`", 2)[1]

    def line(found: re.Match[str]) -> str:
        name = f"{group} {found[1]}"
        said = first[name].replace("\n", " ")
        return f"* [`{found[1]}`](#{name.replace(' ', '-')}): {said}"

    head, sign, commands = part.partition("**Commands**")
    return head + sign + re.sub(r"^\* `([\w-]+)`: .*$", line, commands, flags=re.MULTILINE)
