"""Pages in a real browser: Chromium, once for the module, without a display and without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cachekeeper import pages

from . import samples

try:
    from playwright import sync_api
except ImportError:
    if os.environ.get("CI"):
        raise
    pytest.skip("playwright is not installed", allow_module_level=True)

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE, DESKTOP = (390, 844), (1440, 900)
ORIGINAL = ["softcap", "triton_tem_fused_flex_attention_permute_select_view_1"]

# The ratio of WCAG 2 between an element's text and the nearest ground below it, at the least of all that match.
CONTRAST = """selectors => {
  const channel = value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const parse = text => {
    if (text.startsWith('color(srgb')) return text.match(/[\\d.]+/g).map(Number);
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r / 255, g / 255, b / 255, a];
  };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] === 1 || colour.length === 3) return colour;
    }
    return [1, 1, 1];
  };
  const ratio = element => {
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const least = selector => Math.min(...[...document.querySelectorAll(selector)].map(ratio));
  const found = selector => document.querySelector(selector) ? least(selector) : 0;
  return Object.fromEntries(selectors.map(selector => [selector, found(selector)]));
}"""
TEXTS = (
    *("body", "h1", "h2", "p", "nav a", ".quiet", ".verdict", ".lead", "summary", "code", ".data thead th"),
    *(
        ".tag.slower",
        ".tag.faster",
        ".tag.mixed",
        ".tag.likely",
        ".tag.unlikely",
        ".side-a",
        ".side-b",
    ),
    *(
        ".bars caption",
        ".bars td",
        ".tiles dt",
        ".tiles dd",
        ".suspects li li",
        "#theme",
        "output",
        "label",
        "footer p",
    ),
    *(".beside td", ".beside del", ".beside ins", ".listing", ".note", ".facts dt", ".unread b", ".unread li"),
)


def _chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    if os.environ.get("CI"):
        pytest.fail("no Chromium is installed, and CI must run these tests")
    pytest.skip("no Chromium is installed: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    path = _chromium()
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield running
        running.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    plain = samples.difference()
    many = replace(plain, notes=("12 files are damaged and left out: " + "x" * 400,))
    (folder / "difference.html").write_text(pages.of_difference(many), encoding="utf-8")
    (folder / "report.html").write_text(pages.of_report(samples.report()), encoding="utf-8")
    return folder


Opened = Callable[..., "sync_api.Page"]


@pytest.fixture
def opened(browser: sync_api.Browser, folder: Path) -> Iterator[Opened]:
    """Opens a page. What it asks for besides itself, and what it complains of, fails the test at the end."""
    contexts: list[sync_api.BrowserContext] = []
    asked: list[str] = []
    said: list[str] = []

    def open_page(
        name: str = "difference", size: tuple[int, int] = DESKTOP, scheme: str = "light", script: bool = True
    ) -> sync_api.Page:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, java_script_enabled=script
        )
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto((folder / f"{name}.html").as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    own = {(folder / f"{name}.html").as_uri() for name in ("difference", "report")}
    assert [url for url in asked if url.partition("#")[0] not in own and not url.startswith("data:")] == []
    assert said == []


def _column(page: sync_api.Page, number: int) -> list[str]:
    cells = f"#kernels-changed > tbody:not([hidden]) > tr:first-child > :nth-child({number})"
    return page.locator(cells).all_inner_texts()


def _head(page: sync_api.Page, title: str) -> sync_api.Locator:
    return page.locator("#kernels-changed > thead th").filter(has_text=title)


def test_sorting_text_and_numbers_both_ways(opened: Opened) -> None:
    page = opened()
    assert _column(page, 1)[:2] == ORIGINAL
    _head(page, "Kernel").get_by_role("button").click()
    names = _column(page, 1)
    assert names[0] == "softcap" and names[-1] == ORIGINAL[1] and len(names) == 7
    assert names[1] == "triton_per_fused__unsafe_view_add_clone_permute_select_backward_sum_view_10"
    assert _head(page, "Kernel").get_attribute("aria-sort") == "ascending"
    _head(page, "Kernel").get_by_role("button").click()
    assert _column(page, 1) == names[::-1]
    assert _head(page, "Kernel").get_attribute("aria-sort") == "descending"
    # numbers: the largest change first, then the smallest; 80 → 255 is a change of 175, all others do not change
    _head(page, "Registers").get_by_role("button").click()
    assert _column(page, 1)[0] == "softcap" and _column(page, 4)[0] == "80 → 255"
    _head(page, "Registers").get_by_role("button").click()
    assert _column(page, 1)[-1] == "softcap"
    assert _head(page, "Kernel").get_attribute("aria-sort") is None
    # what has no number stays at the end, whichever the order
    _head(page, "Time").get_by_role("button").click()
    assert _column(page, 1)[0] == ORIGINAL[1] and _column(page, 1)[-1] == "softcap"
    _head(page, "Time").get_by_role("button").click()
    assert _column(page, 1)[-1] == "softcap"


def test_numbers_sort_as_numbers(opened: Opened) -> None:
    page = opened("report")
    button = page.locator("#history-table > thead th").filter(has_text="Entries").get_by_role("button")
    button.click()
    cells = page.locator("#history-table > tbody > tr > :nth-child(3)")
    assert cells.all_inner_texts() == ["286", "285", "284", "283", "282", "281", "280", "99", "98", "97"]
    button.click()
    assert cells.all_inner_texts()[:3] == ["97", "98", "99"]


def test_sorting_by_keyboard(opened: Opened) -> None:
    page = opened()
    _head(page, "Kernel").get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert _head(page, "Kernel").get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Space")
    assert _head(page, "Kernel").get_attribute("aria-sort") == "descending"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Effect"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_details_stay_with_their_row(opened: Opened) -> None:
    page = opened()
    _head(page, "Kernel").get_by_role("button").click()
    _head(page, "Kernel").get_by_role("button").click()
    below = page.locator("#kernels-changed > tbody").first
    assert below.locator("th").first.inner_text() == ORIGINAL[1]
    assert "60 tensor → 0 tensor" in below.locator("summary").inner_text()


def test_filtering_by_text_and_effect(opened: Opened) -> None:
    page = opened()
    tools = page.locator(".tools[data-for=kernels-changed]")
    field, shown = tools.get_by_label("Filter: Kernels that differ"), tools.locator("output")
    assert shown.inner_text() == "7 of 7 rows"
    field.fill("flex PERMUTE")
    assert _column(page, 1) == [ORIGINAL[1]] and shown.inner_text() == "1 of 7 rows"
    field.fill("no such kernel")
    assert _column(page, 1) == [] and shown.inner_text() == "0 of 7 rows"
    field.fill("")
    tools.get_by_label("Effect").select_option("slower")
    assert _column(page, 1) == ORIGINAL and shown.inner_text() == "2 of 7 rows"
    tools.get_by_label("Effect").select_option("none")
    assert len(_column(page, 1)) == 2
    field.fill("clone_permute_select_backward_8")
    assert shown.inner_text() == "1 of 7 rows"


def test_rows_open_by_mouse_and_by_keyboard(opened: Opened) -> None:
    page = opened()
    first = page.locator("#kernels-changed > tbody").first
    source = first.get_by_text("def softcap(source, target, cap, SIZE: tl.constexpr):")
    assert not source.is_visible()
    first.locator("th").first.click()
    assert source.is_visible()
    first.locator("th").first.click()
    assert not source.is_visible()
    first.locator("summary").focus()
    page.keyboard.press("Enter")
    assert source.is_visible()


def test_theme_is_switched_and_remembered(opened: Opened) -> None:
    page = opened(scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    button = page.get_by_role("button", name="Theme")
    assert button.inner_text() == "Theme: auto"
    button.click()
    assert button.inner_text() == "Theme: light" and page.evaluate(ground) == light
    button.click()
    assert button.inner_text() == "Theme: dark"
    dark = page.evaluate(ground)
    page.reload()
    assert page.evaluate(ground) == dark != light
    button.click()
    assert page.evaluate(ground) == light
    assert opened(scheme="dark").evaluate(ground) == dark


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("name", ["difference", "report"])
def test_the_page_never_scrolls_sideways(opened: Opened, name: str, size: tuple[int, int]) -> None:
    page = opened(name, size)
    width = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"
    assert page.evaluate(width) == size[0]
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    assert page.evaluate(width) == size[0]
    # what opens stays within the box, so that it can be read without scrolling it
    wide = "all => all.filter(each => each.getBoundingClientRect().right > innerWidth).length"
    assert page.locator(".more details > *").evaluate_all(wide) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_enough(opened: Opened, scheme: str) -> None:
    for name in ("difference", "report"):
        page = opened(name, scheme=scheme)
        found = page.evaluate(CONTRAST, list(TEXTS))
        assert {text: ratio for text, ratio in found.items() if 0 < ratio < 4.5} == {}
        if name == "difference":
            assert {text for text, ratio in found.items() if not ratio} <= {".note"}


def test_all_of_it_reads_without_a_script(opened: Opened) -> None:
    page = opened(size=PHONE, script=False)
    assert not page.locator("#theme").is_visible() and not page.locator(".tools").first.is_visible()
    assert page.locator("#kernels-changed > tbody").count() == 7
    page.locator("#kernels-changed summary").first.click()
    assert page.get_by_text("def softcap(source, target, cap, SIZE: tl.constexpr):").is_visible()


def test_keyboard_skips_to_the_content_and_links_lead_to_sections(opened: Opened) -> None:
    page = opened(size=PHONE)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    assert page.get_by_text("Skip to content").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.locator("nav a[href='#kernels']").click()
    sync_api.expect(page.locator("#kernels-title")).to_be_in_viewport()
    assert page.url.endswith("#kernels")


def test_hostile_text_runs_nothing(browser: sync_api.Browser, tmp_path: Path) -> None:
    from .test_pages import poisoned

    path = tmp_path / "hostile.html"
    path.write_text(pages.of_difference(poisoned(samples.difference())), encoding="utf-8")
    page = browser.new_page(viewport={"width": PHONE[0], "height": PHONE[1]})
    asked: list[str] = []
    dialogs: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(path.as_uri())
    # even a script that found its way in would not run: only the one with the digest does
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {textContent: 'alert(2)'}))")
    assert (asked, dialogs) == ([path.as_uri()], [])
    for width, height in (PHONE, DESKTOP):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()
