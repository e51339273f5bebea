"""Pages in a real browser without a network: they render, answer pointer and keys, can be read, and print."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from edgefr.studies.pages import write_report
from tests.report.conftest import KINDS
from tests.report.test_web import attacked

__all__ = ["attacked"]
Made = Callable[[str], Path]

CONTRAST = """
const parsed = (color) => color.match(/[\\d.]+/g).map(Number);
const linear = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
const behind = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const color = parsed(getComputedStyle(at).backgroundColor);
    if (color.length < 4 || color[3] > 0) return color;
  }
  return [255, 255, 255];
};
const poor = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let seen = 0;
while (walk.nextNode()) {
  const node = walk.currentNode.parentElement;
  if (!walk.currentNode.textContent.trim() || !node.getClientRects().length || node.closest("script")) continue;
  const style = getComputedStyle(node), ink = parsed(node.closest("svg") ? style.fill : style.color);
  const [a, b] = [light(ink), light(behind(node))].sort((x, y) => y - x);
  seen += 1;
  if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(`${walk.currentNode.textContent.trim()}: ${style.color}`);
}
return [seen, poor];
"""
OPEN = "for (const one of document.querySelectorAll('details')) one.open = true;"
BEYOND = """
return [...document.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.getAttribute("aria-label"));
"""
FIRST_COLUMNS = """
return [...document.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => {
  const first = one.querySelector("tbody th"), left = () => Math.round(first.getBoundingClientRect().left);
  const before = left();
  one.scrollLeft = one.scrollWidth;
  return [before, left(), one.clientWidth - first.getBoundingClientRect().width];
});
"""
OUTSIDE = """
return [...document.querySelectorAll("section[id]")].filter((one) => one.getBoundingClientRect().height < 40
  || !one.querySelector("h2") || one.innerText.split("\\n").length < 2).map((one) => one.id);
"""


def looked_at(browser: Any, path: Path, width: int = 1280, scheme: str = "light", media: str = "screen") -> Any:
    """Open a page on a screen of a width, in a colour scheme; its console has to stay silent."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    browser.get(path.resolve().as_uri())
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)") == []
    return browser


@pytest.fixture
def page(made: Made, tmp_path: Path) -> Path:
    """The page of an audited run."""
    return write_report([made("private")], tmp_path / "report.html")


@pytest.fixture
def pages(made: Made, page: Path, tmp_path: Path) -> list[Path]:
    """The pages of an audited run, of a run over blocks, and of several runs."""
    many = write_report([made("private"), made("plain"), made("blocks")], tmp_path / "many.html")
    return [page, made("blocks") / "report.html", many]


@pytest.mark.parametrize("kind", KINDS)
def test_every_section_of_every_kind_of_run_renders(kind: str, made: Made, browser: Any) -> None:
    found = looked_at(browser, made(kind) / "report.html")
    assert found.execute_script(OUTSIDE) == []
    assert found.execute_script("return document.querySelectorAll('section').length") >= 4


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_is_cut_off_and_a_wide_table_scrolls_beside_its_first_column(
    width: int, page: Path, pages: list[Path], browser: Any
) -> None:
    for path in pages:
        found = looked_at(browser, path, width)
        found.execute_script(OPEN)
        assert found.execute_script("return document.documentElement.scrollWidth") <= width
        assert len(found.execute_script(BEYOND)) > 2 or width > 390
        for before, after, room in found.execute_script(FIRST_COLUMNS):
            assert after == before, "the first column stays where it is"
            assert room > 100, "there is room for another column"


def test_a_report_on_a_phone_is_short_and_unfolds(pages: list[Path], browser: Any) -> None:
    """The first sections are open; a link of the list opens its own, and a wide screen shows all."""
    shown = "return [...document.querySelectorAll('section > details')].map((one) => one.open)"
    for path in pages:
        found = looked_at(browser, path, 390)
        assert found.execute_script("return document.documentElement.scrollHeight") < 8000
        states = found.execute_script(shown)
        assert states[:2] == [True, True]
        assert not any(states[2:])
        found.execute_script("const all = document.querySelectorAll('nav a'); all[all.length - 1].click()")
        found.execute_async_script("setTimeout(arguments[0], 50)")
        assert found.execute_script(shown)[-1]
        assert all(looked_at(browser, path).execute_script(shown))


def test_a_round_has_a_time_line_of_every_class(page: Path, browser: Any) -> None:
    found = looked_at(browser, page)
    rows = found.execute_script(
        "return [...document.querySelectorAll('#rounds tr[data-class]')].map((row) => [row.dataset.class, "
        "row.innerText.split(/\\s+/).slice(-3).map(Number), [...row.querySelectorAll('.span')].map((one) => "
        "[one.x.baseVal.valueInSpecifiedUnits, one.width.baseVal.valueInSpecifiedUnits])])"
    )
    assert {name for name, *_ in rows} <= {"laptop_x86", "phone_sd680", "speaker_512"}
    assert len(rows) >= 2
    assert any(None not in seconds for _, seconds, _ in rows)
    for _, seconds, spans in rows:
        if None in seconds:  # words stand there: a class of fewer than ten devices
            assert not spans
            continue
        assert seconds == sorted(seconds)
        assert len(spans) == 3
        assert all(b[0] >= a[0] + a[1] - 0.5 for a, b in pairwise(spans))  # one begins where the last ended


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_in_both_schemes(scheme: str, pages: list[Path], browser: Any) -> None:
    for path in pages:
        found = looked_at(browser, path, scheme=scheme)
        found.execute_script(OPEN)
        seen, poor = found.execute_script(CONTRAST)
        assert seen > 150
        assert poor == []
        back = found.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", back))) > 600) == (scheme == "light")


def test_a_point_says_its_value_under_the_pointer(page: Path, browser: Any) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    found = looked_at(browser, page)
    tip = found.find_element(By.ID, "tip")
    assert not tip.is_displayed()
    for mark in ("#curve .plot circle", "#verdict td circle", "#costs td circle", "#curve .hit"):
        at = found.find_element(By.CSS_SELECTOR, mark)
        found.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", at)
        ActionChains(found).move_to_element(at).perform()
        assert tip.is_displayed(), mark
        assert re.search(r"\d", tip.text), mark
        assert tip.text == at.get_attribute("data-tip")
    ActionChains(found).move_to_element(found.find_element(By.CSS_SELECTOR, "#curve .across")).perform()
    assert not tip.is_displayed()


def test_points_are_reached_by_keys_and_read_aloud(page: Path, browser: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    found = looked_at(browser, page)
    plot, tip = found.find_element(By.CSS_SELECTOR, "#curve .plot"), found.find_element(By.ID, "tip")
    said = []
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.END, Keys.HOME, Keys.ARROW_DOWN):
        plot.send_keys(key)
        assert tip.is_displayed()
        said.append(tip.text)
    assert [re.search(r"round (\d+)", text)[1] for text in said[:4]] == ["0", "1", "3", "0"]  # type: ignore[index]
    assert "round" not in said[4].split(":")[1]  # a level, which has no round
    assert tip.get_attribute("aria-live") == "polite"
    plot.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


def test_a_device_class_is_chosen_by_keys(page: Path, browser: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    found = looked_at(browser, page)
    select = found.find_element(By.ID, "class")
    panels = "[...document.querySelectorAll('.panel')].filter((one) => one.offsetHeight)"
    shown = f"return {panels}.map((one) => one.dataset.panel)"
    assert found.execute_script(shown) == ["all"]
    select.send_keys(Keys.ARROW_DOWN)
    (name,) = found.execute_script(shown)
    assert name == select.get_attribute("value") != "all"
    rows = "return [...document.querySelectorAll('tr.chosen')].map((one) => one.dataset.class)"
    assert found.execute_script(rows) == [name, name, name]  # in costs, in the time line and in fairness


def test_the_whole_page_is_reached_by_the_tab_key(page: Path, browser: Any) -> None:
    """Every focus is inside the page and visible, in the order of the page, and a figure is one stop."""
    found = looked_at(browser, page)
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    stops = []
    for _ in range(60):
        found.switch_to.active_element.send_keys(Keys.TAB)
        stop = found.switch_to.active_element
        if stop.tag_name == "body":
            break
        stops.append(found.execute_script("return arguments[0].closest('section')?.id ?? 'head'", stop))
        outline = stop.value_of_css_property("outline-style")
        assert outline != "none", stop.get_attribute("outerHTML")[:80]
    sections = found.find_elements(By.CSS_SELECTOR, "section[id]")
    assert list(dict.fromkeys(stops)) == ["head", *(one.get_attribute("id") for one in sections)]
    assert stops.count("curve") <= 4


def test_what_a_screen_reader_needs_is_there(page: Path, browser: Any) -> None:
    found = looked_at(browser, page)
    tree = found.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    known = [node for node in tree if not node.get("ignored")]

    def names(role: str) -> list[str]:
        return [node.get("name", {}).get("value", "") for node in known if node["role"].get("value") == role]

    assert names("RootWebArea") == ["fedmf on demo: private"]
    assert len(names("main")) == len(names("navigation")) == 1
    for role in ("combobox", "table", "region", "columnheader", "rowheader", "group", "link", "heading"):
        assert names(role), role
        assert all(names(role)) or role in ("table", "group"), role
    assert [name for name in names("group") if "Arrow keys" in name]
    levels = found.execute_script("return [...document.querySelectorAll('h1,h2,h3,h4')].map((one) => +one.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_it_prints_to_pages_that_break_well(page: Path, browser: Any) -> None:
    found = looked_at(browser, page, scheme="dark")
    printed = found.execute_cdp_cmd("Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True})
    content = base64.b64decode(printed["data"])
    assert content.startswith(b"%PDF")
    pages = int(re.search(rb"/Type\s*/Pages\b[^>]*/Count (\d+)", content)[1])  # type: ignore[index]
    assert 4 <= pages <= 14
    found = looked_at(browser, page, width=718, scheme="dark", media="print")  # A4 less its margins, in CSS pixels
    found.execute_script(OPEN)
    assert found.execute_script("return document.documentElement.scrollWidth") <= 718
    style = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    assert found.execute_script(style, "nav", "display") == "none"
    assert {found.execute_script(style, part, "breakInside") for part in ("table", "tr", "figure")} == {"avoid"}
    assert found.execute_script(style, "h2", "breakAfter") == "avoid"
    ink = found.execute_script(style, "body", "color")
    assert sum(map(int, re.findall(r"\d+", ink))) < 200  # dark on white, whatever the screen's scheme


def test_hostile_words_run_nothing(attacked: Path, browser: Any) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    path = write_report([attacked])
    found = looked_at(browser, path)
    with pytest.raises(NoAlertPresentException):
        _ = found.switch_to.alert
    assert found.execute_script("return document.querySelectorAll('script').length") == 1
    assert found.execute_script("return document.querySelectorAll('img, iframe, object, b').length") == 0
    assert found.execute_script(OUTSIDE) == []


def test_a_script_that_is_not_the_pages_own_would_not_run(page: Path, browser: Any, tmp_path: Path) -> None:
    """Were a value ever not escaped, the page's own policy refuses it, and anything from elsewhere."""
    foul = tmp_path / "foul.html"
    shutil.copy(page, foul)
    script = (
        "<script>document.title='run'</script><img src='http://127.0.0.1:1/x.png' onerror=\"document.title='run'\">"
    )
    foul.write_text(foul.read_text().replace("<main", f"{script}<main"))
    browser.get(foul.as_uri())
    assert browser.title != "run"
    assert any("Content Security Policy" in line["message"] for line in browser.get_log("browser"))
