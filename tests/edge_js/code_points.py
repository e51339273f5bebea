"""Code points as the library of tokenizers reads them become a table: python -m tests.edge_js.code_points."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from tests.edge_js.conftest import HOME

TABLE = HOME / "src" / "text" / "code_points.ts"
POINTS = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
NEWER = "105c0-105ff 11380-113ff 11938 16120-1612f 16d68-16d6a"
"""Scripts that Unicode has added since the library's tables, and whose letters it takes apart."""
WHAT = {
    "GONE": "left out of every text",
    "MARKS": "left out with accents",
    "WHOLE": "not taken apart, as newer tables of Unicode would",
    "PUNCTUATION": "words of their own, beside those of ASCII",
}


def ranges(points: Iterable[int]) -> str:
    """Return ranges of code points as text.

    >>> ranges([1, 2, 3, 16])
    '1-3 10'
    """
    found: list[list[int]] = []
    for point in points:
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return " ".join(f"{start:x}" if start == end else f"{start:x}-{end:x}" for start, end in found)


def table() -> dict[str, str]:
    clean = BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    strip = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    split = BertPreTokenizer()
    without = {point: strip.normalize_str(chr(point)) for point in POINTS}
    alone = [p for p in POINTS if [text for text, _ in split.pre_tokenize_str(f"a{chr(p)}b")] == ["a", chr(p), "b"]]
    return {
        "GONE": ranges(point for point in POINTS if not clean.normalize_str(chr(point))),
        "MARKS": ranges(point for point in POINTS if not without[point]),
        "WHOLE": NEWER,
        "PUNCTUATION": ranges(point for point in alone if point > 127),
    }


def source() -> str:
    lines = ["/** Code points as the library of tokenizers reads them; tests/edge_js/code_points.py writes them. */\n"]
    for name, text in table().items():
        rows = "\n".join(textwrap.wrap(text, 118))
        lines.append(f"/** {WHAT[name].capitalize()}. */\nexport const {name} = `\n{rows}`;\n")
    return "\n".join(lines)


if __name__ == "__main__":
    TABLE.write_text(source(), encoding="utf-8")
