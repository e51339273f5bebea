"""Notebooks are shown as pages: their texts and their code. What the code prints is seen where it is run."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
ABOUT = """# Notebooks

They are in `notebooks/` of the repository, and a test runs every cell. To open one:
`pip install -e '.[cloud]' jupyterlab`, then `jupyter lab notebooks`.

"""


def notebook_pages() -> dict[str, str]:
    """Return a page that lists the notebooks, and one of each, by their places in the site."""
    pages = {f"notebooks/{path.stem}.md": notebook_page(path) for path in sorted(FOLDER.glob("*.ipynb"))}
    links = [f"- [{page.split(chr(10))[0].removeprefix('# ')}]({Path(place).name})" for place, page in pages.items()]
    return {"notebooks/README.md": ABOUT + "\n".join(links) + "\n", **pages}


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [("".join(cell["source"]), cell["cell_type"]) for cell in cells]
    page = "\n\n".join(f"```python\n{text}\n```" if kind == "code" else text for text, kind in parts)
    return page.replace(".ipynb)", ".md)") + "\n"
