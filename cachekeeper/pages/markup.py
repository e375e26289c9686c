"""HTML elements. Text that is not `Html` is escaped wherever it is put, so that none can be forgotten."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from functools import cache

Attribute = str | int | float | None

LONGEST = 2_000
_VOID = frozenset(["br", "input", "meta", "rect", "circle", "line", "path", "polyline"])
# Controls, and what turns the direction of text around or takes no space: a name must look like what it is.
_CONTROLS = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff"
    r"\U000e0000-\U000e0fff"
)
_CODE = re.compile(r"`([^`\n]+)`")
_UNSHOWN = re.compile(f"[{_CONTROLS}]")
_UNSAFE = re.compile(f"[{_CONTROLS}&<>\"']")


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


NOTHING = Html("")


def escaped(value: object, longest: int = LONGEST) -> Html:
    """Any text as HTML, in an element or in a quoted attribute: one line or many, without control characters.

    Args:
        longest: characters that are shown; of more, it says how many are left out.
    """
    if isinstance(value, Html):
        return value
    text = _cut(str(value), longest)
    if not _UNSAFE.search(text):
        return Html(text)
    return Html(html.escape(_UNSHOWN.sub("\N{REPLACEMENT CHARACTER}", text), quote=True))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest:,} more characters)"


def worded(value: object, longest: int = LONGEST) -> Html:
    """A sentence as HTML: what stands in backticks is code, and "->" elsewhere an arrow."""
    if isinstance(value, Html):
        return value
    parts = _CODE.split(_cut(str(value), longest))
    return joined(element("code", part) if at % 2 else arrows(part) for at, part in enumerate(parts))


def arrows(text: str) -> str:
    """ "8 -> 1" as "8 → 1"."""
    return text.replace(" -> ", " → ")


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Parts one after the other; each that is not `Html` is escaped."""
    return Html(escaped(between).join(escaped(part) for part in parts))


def element(name: str, *children: object, **attributes: Attribute) -> Html:
    """An element, as `element("td", text, class_="number", data_v=3)`.

    Args:
        children: `Html`, or text that is escaped here.
        attributes: "_" at the end is left out, and others become "-". Those that are None or "" are left out, but for
            `value`, and `hidden=""` and the like are written with `flag`.
    """
    opening = f"<{name}{''.join(map(_attribute, attributes.items()))}>"
    if name in _VOID:
        return Html(opening if name in ("br", "input", "meta") else f"{opening[:-1]}/>")
    return Html(f"{opening}{joined(children)}</{name}>")


def flag(name: str) -> dict[str, Attribute]:
    """An attribute that is true by being there: `element("p", **flag("hidden"))`."""
    return {name: name}


def _attribute(item: tuple[str, Attribute]) -> str:
    name, value = item
    if value is None or (value == "" and name != "value"):
        return ""
    return f'{_named(name)}="{escaped(value)}"'


@cache
def _named(name: str) -> str:
    return f" {name.rstrip('_').replace('_', '-')}"
