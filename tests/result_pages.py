"""Say of pages of results that they were made anew by today's code, or list what has moved since:

    python -m tests.result_pages f3crec/ml-100k/table-2.md ...

A page rests on golden cases (`experiments/pages.json`). Where the values of their models have moved since it was made,
it is stale: its entry and the page itself say so until the page is made again.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.golden.kept import kept

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "experiments" / "pages.json"
STALE = "> Stale: the golden values of its methods have moved since this page was made."


def pages() -> dict[str, dict[str, Any]]:
    """Return by path below experiments/ a page's command, commit, golden cases, and a digest of their values then."""
    return json.loads(INDEX.read_text())


def values(cases: str) -> str:
    """Return a digest of the models that golden cases come to; `cases` are patterns, separated by semicolons."""
    known, found = kept(), {}
    for pattern in cases.split(";"):
        own = {name: one["tensors"] for name, one in known.items() if fnmatchcase(name, pattern.strip())}
        assert own, f"no golden case is called {pattern}"
        found |= own
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:12]


def main() -> None:
    entries = pages()
    for name in sys.argv[1:]:
        commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True)
        entries[name] |= {"commit": commit.stdout.strip(), "values": values(entries[name]["cases"])}
        page = INDEX.parent / name
        page.write_text(page.read_text().replace(f"{STALE}\n\n", ""))
    INDEX.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n")
    for name, entry in entries.items():
        if entry["values"] != values(entry["cases"]):
            page = INDEX.parent / name
            title, _, rest = page.read_text().partition("\n")
            page.write_text(page.read_text() if STALE in rest else f"{title}\n\n{STALE}\n{rest}")
            print(f"stale: {name}, made by {entry['commit']}")


if __name__ == "__main__":
    main()
