"""What a refusal prints: one line, and nothing that a terminal acts on."""

from __future__ import annotations

import pytest

from edgefr.cli.app import _refuse


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("no file \x1b[2J\x1b]0;title\x07x", "no file ?[2J?]0;title?x"),
        ("two\nlines\r\n and\ta tab", "two lines and a tab"),
        ("\x9b31m and \u202egnp.exe and \x7f", "?31m and ?gnp.exe and ?"),
        ("a [bold]name[/bold] é ε", "a [bold]name[/bold] é ε"),
    ],
)
def test_a_message_is_one_line_without_what_a_terminal_acts_on(
    message: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _refuse(message) == 2
    assert capsys.readouterr() == ("", f"error: {line}\n")
