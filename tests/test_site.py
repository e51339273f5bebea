"""The site is whole: it builds strictly, its links lead somewhere, and its pages load nothing from elsewhere."""

from __future__ import annotations

import functools
import html
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from edgefr.experiment.experiment import Experiment
from tests.report.conftest import browser

__all__ = ["browser"]
ROOT = Path(__file__).parent.parent
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("object", "data")}
"""Attributes whose address a browser fetches by itself."""


def built(config: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a configuration strictly; `--quiet` would hide warnings from that, too."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(out)]
    surroundings = os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    out = tmp_path_factory.mktemp("site")
    done = built(ROOT / "mkdocs.yml", out)
    assert done.returncode == 0, done.stderr
    return out


class Page(HTMLParser):
    """The ids of a page, what it links to, and what a browser that opens it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        passive = tag == "link" and given.get("rel") in ("canonical", "next", "prev")
        self.loads += [given[name] for kind, name in LOADED if kind == tag and name in given and not passive]


@functools.cache
def pages(site: Path) -> dict[Path, Page]:
    """Return every page of the site by its file, but for the one that a server shows in the place of a missing one."""
    return {path: Page(path.read_text()) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def dead(site: Path) -> list[str]:
    """Return the links within the site that lead nowhere."""
    found, out = pages(site), []
    for path, page in found.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path if not parts.path else Path(os.path.normpath(path.parent / unquote(parts.path)))
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target in found and anchor not in found[target].ids):
                out.append(f"{path.relative_to(site)}: {link}")
    return out


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    assert dead(site) == []
    assert sum(len(page.links) for page in pages(site).values()) > 1000


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    foreign = [(path, one) for path, page in pages(site).items() for one in page.loads if urlsplit(one).netloc]
    assert foreign == []
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text()) == [], sheet


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The address that serves the site on this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.mark.parametrize("width", [390, 1280])
def test_pages_ask_nobody_else_and_fit_a_screen(width: int, site: Path, address: str, browser: Any) -> None:
    online = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", online)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for place in ("", "reference/commands/", "methods/fedcar/", "experiments/"):
        browser.get(urljoin(address, place))
        loaded = browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert loaded
        assert [one for one in loaded if not one.startswith(address)] == []
        assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_the_command_line_page_has_every_command(site: Path) -> None:
    from edgefr.cli.commands import HOMES

    ids = pages(site)[site / "reference" / "commands" / "index.html"].ids
    assert len(HOMES) > 15
    assert [name for name in HOMES if f"edgefr-{name}" not in ids] == []


@pytest.mark.parametrize("package", ["edgefr", "edge", "edgefr.testing"])
def test_the_python_page_has_every_public_name(package: str, site: Path) -> None:
    ids = pages(site)[site / "reference" / "python" / "index.html"].ids
    names = import_module(package).__all__
    assert len(names) >= 4
    assert [name for name in names if f"{package}.{name}" not in ids and name[0] != "_"] == []


@pytest.mark.parametrize(
    ("page", "row"),
    [
        ("experiment", ["rounds", "10", "federated rounds (T)", "whole number ≥ 0 ≤ 1000000"]),
        ("experiment", ["trust", "central", "noises its own upload", "local"]),
        ("experiment", ["beta", "0.9", "weight of a row's value before", "number > 0 < 1"]),
        ("experiment", ["steps", "150", "optimiser steps", "whole number ≥ 1"]),
        ("methods", ["lora_rank", "8", "rank r of the matrices", "client: lora"]),
        ("methods", ["margin", "1.0", "delta of Eq. 20"]),
        ("fleet", ["battery_wh", "null", "battery, Wh", "a figure or none"]),
    ],
)
def test_a_field_is_on_the_page_with_its_default_and_what_it_is(page: str, row: list[str], site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "reference" / page / "index.html").read_text().replace("</tr>", "\0"))
    rows = [" ".join(html.unescape(line).split()) for line in text.split("\0")]
    assert [line for line in rows if line.startswith(f"{row[0]} {row[1]} ") and all(part in line for part in row)], row


def test_every_field_of_an_experiment_has_a_row(site: Path) -> None:
    text = (site / "reference" / "experiment" / "index.html").read_text()
    shown = set(re.findall(r"<tr>\s*<td><code>(\w+)</code>", text)) | set(re.findall(r'<h3 id="(\w+)"', text))
    assert [name for name in Experiment.model_fields if name not in shown] == []
    assert {"clip", "sigma", "server_lr", "full_ranking_users", "hidden"} <= shown


def test_equations_are_mathml(site: Path) -> None:
    text = (site / "methods" / "fedcar" / "index.html").read_text()
    assert text.count("<math ") == 3
    assert re.search(r"<msqrt>(<mrow>)?<mi>d</mi>", text)


def test_a_page_without_a_place_and_a_dead_link_are_refused(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "docs" / "lost.md").write_text("# Lost\n\n[none](none.md), [there](api.md#none), [no](/api.md)\n")
    hooks = ROOT / "docs" / "generate" / "hooks.py"
    (tmp_path / "mkdocs.yml").write_text(f"INHERIT: {ROOT}/mkdocs.yml\nplugins: []\nhooks: [{hooks}]\n")
    done = built(tmp_path / "mkdocs.yml", tmp_path / "out")
    assert done.returncode == 1
    for said in ('"nav" configuration', "'none.md'", "'#none'", "'/api.md'"):
        assert said in done.stderr, (said, done.stderr)
