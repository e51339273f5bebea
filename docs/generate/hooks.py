"""What the site adds to the pages of docs/: pages made from the code, and those that lie elsewhere in the repository.

Owns: which pages there are, and links between them. Does not own: what a generated page says (files beside this one).
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from cite import cite_page
from commands import commands_page
from ipynb import notebook_pages
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from python import python_page
from settings import experiment_page, fleet_page, methods_page

ROOT = Path(__file__).resolve().parents[2]
SHOWN = {".md", ".png", ".svg"}
MADE = {
    "reference/commands.md": commands_page,
    "reference/experiment.md": experiment_page,
    "reference/methods.md": methods_page,
    "reference/fleet.md": fleet_page,
    "reference/python.md": python_page,
    "cite.md": cite_page,
}
"""Pages that are made from the code, by their place in the site."""

OF_THE_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md")
"""Pages that lie in the root of the repository and are shown in the site."""

WIDE = ("threat-model.md", "versions.md")
"""Pages whose tables need the room of the list of contents."""


def equation(source: str, *_: Any, **__: Any) -> str:
    """Return a ```math block as MathML, which browsers show without a script or a font from elsewhere."""
    return "\n".join(convert(line, display="block") for line in source.strip().split("\n\n"))


def on_config(config: Any) -> Any:
    """Show ```math blocks as equations."""
    fence = {"name": "math", "class": "math", "format": equation}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
    return config


def elsewhere() -> list[str]:
    """Return the paths from the root of pages and pictures that lie outside docs/ and are shown in the site."""
    found = [path for folder in ("experiments", "benchmarks") for path in (ROOT / folder).rglob("*")]
    return [*sorted(path.relative_to(ROOT).as_posix() for path in found if path.suffix in SHOWN), *OF_THE_ROOT]


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie elsewhere, a list of them, and those that are made from the code."""
    for path in elsewhere():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    made = {path: page() for path, page in {**MADE, "experiments/tables.md": tables_page}.items()}
    for path, content in {**made, **notebook_pages()}.items():
        files.append(File.generated(config, path, content=content))
    return files


def tables_page() -> str:
    """Return a page that links to every table and figure that was made again."""
    out, folder = ["# All tables and figures", "", "Pages as `edgefr reproduce` and `edgefr tune` wrote them."], ""
    for path in (path for path in elsewhere() if path.startswith("experiments/") and path.endswith(".md")):
        place, name = posixpath.split(path.removeprefix("experiments/"))
        if name == "README.md":
            continue
        if place != folder:
            out += ["", f"## {place}", ""]
            folder = place
        title = (ROOT / path).read_text().split("\n", 1)[0].removeprefix("# ")
        out.append(f"- [{name.removesuffix('.md')}]({place}/{name}): {title}")
    return "\n".join(out) + "\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page whose links lead within the site and whose blocks are named as the site's theme has it."""
    markdown = re.sub(r"^```(python|yaml) (\S+)$", r'```\1 title="\2"', markdown, flags=re.MULTILINE)
    markdown = re.sub(r"^```sh \w+$", "```sh", markdown, flags=re.MULTILINE)
    here = page.file.src_uri
    if here in WIDE:
        page.meta["hide"] = ["toc"]
    if here in MADE:
        return markdown
    return re.sub(r"(\]\()([^)#:/][^)#:]*)", lambda found: found[1] + moved(found[2], here), markdown)


def moved(target: str, here: str) -> str:
    """Return a link of a file of the repository as one between pages, whose folders docs/ is no part of.

    >>> moved("../experiments/README.md", "papers.md"), moved("../papers.md", "methods/fcucr.md")
    ('experiments/README.md', '../papers.md')
    """
    home = "" if here.startswith(("experiments/", "benchmarks/", "notebooks/")) or here in OF_THE_ROOT else "docs/"
    place = posixpath.normpath(posixpath.join(posixpath.dirname(home + here), target))
    return posixpath.relpath(place.removeprefix("docs/"), posixpath.dirname(here) or ".")
