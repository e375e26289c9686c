"""The frame of every page: what a browser may load (nothing), the style, the way around, and the script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..version import __version__
from .markup import NOTHING, Html, element, joined


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading; `count` is shown where the section is named in the navigation."""

    identifier: str
    title: str
    content: Html
    count: str = ""
    lead: str = ""


def frame(title: str, head: Html, sections: Sequence[Section]) -> str:
    """A whole page.

    Args:
        head: what stands above the sections, with the page's h1.
        sections: those without content are left out.
    """
    kept = [section for section in sections if section.content]
    navigation = element("nav", element("ul", joined(map(_link, kept))), aria_label="Sections")
    main = element("main", head, joined(map(_section, kept)), id="content", tabindex=-1)
    body = element("body", _bar(), element("div", navigation, main, class_="columns"), _foot(), _script())
    return f'<!doctype html>\n<html lang="en">{_head(title)}{body}</html>\n'


def heading(over: str, title: Html, below: Html, kind: str = "") -> Html:
    """The head of a page. `kind`: of the title, "big" where no verdict follows."""
    return element("header", element("p", over, class_="over"), element("h1", title, class_=kind), below, class_="head")


def part(title: str, content: Html) -> Html:
    """A part of a section, with a heading of its own; nothing where there is no content."""
    return element("div", element("h3", title), content, class_="part") if content else NOTHING


def _head(title: str) -> Html:
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' "
        f"'sha256-{_digest()}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        # the policy's quotes may stand in an attribute that double quotes enclose
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="color-scheme", content="light dark"),
        element("meta", name_="referrer", content="no-referrer"),
        element("title", title),
        Html('<link rel="icon" href="data:,">'),
        Html(f"<style>{_text('style.css')}</style>"),
    )


def _bar() -> Html:
    skip = element("a", "Skip to content", class_="skip", href="#content")
    theme = Html('<button type="button" id="theme" hidden>Theme: <span>auto</span></button>')
    return element("div", skip, element("span", "cachekeeper", class_="brand"), theme, class_="topbar")


def _link(section: Section) -> Html:
    count = element("span", section.count, class_="count") if section.count else NOTHING
    return element("li", element("a", section.title, " ", count, href=f"#{section.identifier}"))


def _section(section: Section) -> Html:
    name = f"{section.identifier}-title"
    lead = element("p", section.lead, class_="lead") if section.lead else NOTHING
    title = element("h2", section.title, id=name)
    return element("section", title, lead, section.content, id=section.identifier, aria_labelledby=name)


def _foot() -> Html:
    return element("footer", element("p", f"Written by cachekeeper {__version__}. This page loads nothing."))


def _script() -> Html:
    return Html(f"<script>{_text('script.js')}</script>")


@cache
def _digest() -> str:
    # with a digest browsers run this script alone, and heed 'unsafe-inline' no longer
    return base64.b64encode(hashlib.sha256(_text("script.js").encode()).digest()).decode()


@cache
def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8").strip()
