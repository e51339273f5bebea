"""The first line of every docstring is a whole plain sentence: it ends, and its main clause has a verb.

A first line passes where it opens with an imperative ("Return the ranks"), where a finite verb stands before the first
word that opens a subordinate clause ("A client holds the rows that it reads"), or where it has more finite verbs than
such words. "The rows that a client holds" does neither and is a fragment. The verbs are in `docstring_words.txt`; one
that is missing is added there.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("privacy", "edge", "cloud", "export", "edgefr")


def word_lists() -> dict[str, frozenset[str]]:
    """Return the lists of `docstring_words.txt` by name."""
    text = re.sub(r"^#.*$", "", (ROOT / "tests" / "docstring_words.txt").read_text(), flags=re.MULTILINE)
    _, *parts = re.split(r"^\[(\w+)\]$", text, flags=re.MULTILINE)
    return {name: frozenset(words.split()) for name, words in zip(parts[::2], parts[1::2], strict=True)}


WORDS = word_lists()
IMPERATIVES = WORDS["imperatives"]

FINITE = WORDS["finite"]

EITHER = WORDS["either"]

BEFORE_NOUNS = WORDS["before_nouns"]

OPEN_A_CLAUSE = WORDS["open_a_clause"]

FRAGMENT_OPENINGS = frozenset({"what", "where", "who", "how", "whether", "which", "whose", "whom", "why"})

ALLOWED: frozenset[str] = frozenset()
"""First lines that are sentences though the rule above does not see it."""


def first_line_fault(docstring: str, module: bool = False) -> str | None:
    """Return what is wrong with a docstring's first line, or None; a module may name its topic before a colon."""
    line = docstring.strip().split("\n")[0].strip()
    if line in ALLOWED:
        return None
    if not re.match(r"[A-Z0-9\"'`(<>_]", line):
        return "does not begin with a capital letter, a number or a quote"
    if line[-1] not in ".:?":
        return "does not end with a full stop, a colon or a question mark"
    if line.split()[0].lower() in FRAGMENT_OPENINGS and "?" not in line:
        return "opens with a question word and asks nothing"
    clause = re.split(r"(?<=[.?])\s|[:;]\s|[.:]$", line)[0]
    _, _, rest = line.partition(": ")
    return None if is_sentence(clause) or (module and is_sentence(rest)) else "is a fragment"


def is_sentence(text: str) -> bool:
    """Say whether a text has a verb of its own, by the rule at the top."""
    if text.endswith("?"):
        return True
    plain = re.sub(r"`[^`]*`|\"[^\"]*\"|\([^)]*\)", " Name ", text)
    words = [word.lower() for word in re.findall(r"[A-Za-z][A-Za-z'-]*", plain)]
    if not words:
        return False
    if words[0] == "raises" or (words[0] in IMPERATIVES and words[1:2] not in ([], ["of"])):
        return True
    verbs = [at for at in range(1, len(words)) if is_verb(words, at)]
    clauses = [at for at, word in enumerate(words) if word in OPEN_A_CLAUSE]
    return len(verbs) > len(clauses) or bool(verbs and clauses and verbs[0] < clauses[0])


def is_verb(words: list[str], at: int) -> bool:
    """Say whether the word at a place can be a finite verb there."""
    word = words[at]
    if at > 1 and words[at - 1] in ("it", "they"):  # "the values it takes": a clause that nothing opens
        return False
    sure = word in FINITE and (not word.endswith("s") or word in ("is", "was", "has", "does"))
    return sure or (word in FINITE | EITHER and words[at - 1] not in BEFORE_NOUNS)


def docstrings(source: str) -> list[tuple[str, int, str]]:
    """Return every docstring of a file: whose it is, its line, its text."""
    out = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                out.append((getattr(node, "name", "module"), node.body[0].lineno, text))
    return out


def faults(paths: list[Path]) -> list[str]:
    """Return one line for each docstring at fault."""
    out = []
    for path in paths:
        for name, line, text in docstrings(path.read_text()):
            fault = first_line_fault(text, module=name == "module")
            if fault is not None:
                out.append(f"{path.relative_to(ROOT)}:{line} {name} {fault}: {text.splitlines()[0]}")
    return out


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_open_with_a_sentence(room):
    assert faults(sorted((ROOT / room).rglob("*.py"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "What `drop` makes of it.",
        "The rows that a client holds.",
        "Number of items of the catalogue.",
        "A client's update, and its norm.",
        "Whether a client was in the round.",
        "The local program: what one client does in a round, written once.",
        "a client sends its update.",
        "A client sends its update",
        "Means over the users.",
        "The rounds that were done.",
        "The rest of a stage: its tests, and what is handed on.",
    ],
)
def test_a_fragment_is_refused(line):
    assert first_line_fault(line) is not None


@pytest.mark.parametrize(
    "line",
    [
        "Return what `drop` makes of it.",
        "A client holds the rows that it reads.",
        "`Ragged` is a column of lists of different lengths.",
        "Was one interaction among those a client trained on?",
        "Raises `InputError` for a metric that a run would not have.",
        "Raise `InputError` where nothing fits.",
    ],
)
def test_a_sentence_is_accepted(line):
    assert first_line_fault(line) is None
