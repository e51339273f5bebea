"""Tables are written for papers in LaTeX, with the rules of booktabs; nothing in a cell is read as a command."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

_SIGNS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "−": "$-$",
    "\n": " ",
}


@dataclass(frozen=True)
class Tex:
    """This text is LaTeX already."""

    text: str


def escape(text: str) -> str:
    """Return text as LaTeX shows it.

    >>> escape("a_b & 50 %")
    'a\\\\_b \\\\& 50 \\\\%'
    """
    return "".join(_SIGNS.get(sign, sign if sign.isprintable() else "?") for sign in text)


NEEDS = "% needs \\usepackage{booktabs}"
"""The first line of a file of tables."""


def latex_table(rows: Sequence[Mapping[str, str | Tex]], caption: str, label: str, words: Collection[str] = ()) -> str:
    """Write rows with the same keys as a table: the first column and columns of `words` left, the others right.

    >>> print(latex_table([{"run": "a_1", "NDCG": "0.1"}], "Two runs.", "runs"))
    \\begin{table}
    \\centering
    \\caption{Two runs.}
    \\label{tab:runs}
    \\begin{tabular}{lr}
    \\toprule
    run & NDCG \\\\
    \\midrule
    a\\_1 & 0.1 \\\\
    \\bottomrule
    \\end{tabular}
    \\end{table}
    """
    titles = list(rows[0])
    columns = "".join("l" if not at or title in words else "r" for at, title in enumerate(titles))
    body = [_line([row[title] for title in titles]) for row in rows]
    return "\n".join(
        [
            *("\\begin{table}", "\\centering", f"\\caption{{{escape(caption)}}}", f"\\label{{tab:{label}}}"),
            *(f"\\begin{{tabular}}{{{columns}}}", "\\toprule", _line(titles), "\\midrule"),
            *body,
            *("\\bottomrule", "\\end{tabular}", "\\end{table}"),
        ]
    )


def _line(cells: Sequence[str | Tex]) -> str:
    return (
        " & ".join(cell.text if isinstance(cell, Tex) else escape(cell.replace(".\n", ".")) for cell in cells) + r" \\"
    )
