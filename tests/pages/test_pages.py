"""Pages as text: what comes from a cache is escaped, they are well formed, load nothing, and stay small."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper import pages
from cachekeeper.diffing.models import Change, Difference, KernelPair, Metric
from cachekeeper.inventory.models import Inventory, Kernel
from cachekeeper.pages import charts, numbers, sources, tables
from cachekeeper.pages.markup import Html, element, escaped, worded
from cachekeeper.pages.models import Point, Report

from . import samples

SCRIPT = "<script>alert(1)</script>"
POISON = f"'\"><img src=https://x.invalid/y onerror=alert(1)></style>{SCRIPT}\u202e\x1b[31m\x00\ud800"
MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
VOID = {"meta", "link", "input", "br", "wbr"}


class Parsed(HTMLParser):
    """Tags and attributes; `faults` says where a tag is not closed as it was opened."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.faults: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        self.faults += [f"{tag} is left open" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.faults.append(f"{tag} has an attribute twice: {names}")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, name: str) -> list[str]:
        return [value for _, each, value in self.attributes if each == name]


def poisoned(value: Any) -> Any:
    """The same with every text in it made hostile."""
    if isinstance(value, str):
        return f"{value}{POISON}"
    if isinstance(value, tuple):
        return tuple(map(poisoned, value))
    if isinstance(value, Mapping):
        return {poisoned(key): poisoned(each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: poisoned(getattr(value, each.name)) for each in fields(value)})
    return value


DIFFERENCE = pages.of_difference(samples.difference())
REPORT = pages.of_report(samples.report())


@pytest.mark.parametrize("page", [DIFFERENCE, REPORT], ids=["difference", "report"])
def test_is_well_formed_and_loads_nothing(page: str) -> None:
    parsed = Parsed(page)
    assert parsed.faults == []
    identifiers = parsed.values("id")
    assert len(identifiers) == len(set(identifiers))
    assert [value for name in ("src", "srcset", "action", "data", "poster") for value in parsed.values(name)] == []
    assert [value for value in parsed.values("href") if value != "data:," and not value.startswith("#")] == []
    assert {value[1:] for value in parsed.values("href") if value.startswith("#")} <= set(identifiers)
    assert set(parsed.values("for")) <= set(identifiers) and set(parsed.values("aria-labelledby")) <= set(identifiers)
    assert not re.search(r"@import|url\(|\bfetch\b|XMLHttpRequest|https?://", page)
    assert parsed.tags["h1"] == parsed.tags["script"] == parsed.tags["style"] == parsed.tags["main"] == 1


@pytest.mark.parametrize("page", [DIFFERENCE, REPORT], ids=["difference", "report"])
def test_policy_forbids_all_but_the_page(page: str) -> None:
    policy = dict(part.split(" ", 1) for part in re.findall(r'Policy" content="([^"]*)"', page)[0].split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["style-src"] == "'unsafe-inline'" and policy["img-src"] == "data:"
    assert re.fullmatch(r"'unsafe-inline' 'sha256-[A-Za-z0-9+/]{43}='", policy["script-src"])
    assert page.index("Content-Security-Policy") < page.index("<style>")


@pytest.mark.parametrize(
    ("made", "clean"),
    [
        (lambda: pages.of_difference(poisoned(samples.difference())), DIFFERENCE),
        (lambda: pages.of_report(poisoned(samples.report())), REPORT),
    ],
    ids=["difference", "report"],
)
def test_hostile_text_stays_text(made: Any, clean: str) -> None:
    page = made()
    parsed, expected = Parsed(page), Parsed(clean)
    assert parsed.faults == []
    assert set(parsed.tags) <= set(expected.tags) and parsed.tags["script"] == 1 and parsed.tags["img"] == 0
    names = {name for _, name, _ in parsed.attributes}
    assert names <= {name for _, name, _ in expected.attributes} and not any(name.startswith("on") for name in names)
    assert parsed.values("id") == expected.values("id")
    assert parsed.values("href") == expected.values("href")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\ud800]", page)
    page.encode()
    assert parsed.text.count(SCRIPT) > 100


def test_escaped_is_one_function_for_text_and_attributes() -> None:
    assert escaped("<a href='x'>\"&") == "&lt;a href=&#x27;x&#x27;&gt;&quot;&amp;"
    assert escaped("a\tb\nc\x00\x9b\u200b\u2066") == "a\tb\nc" + "\ufffd" * 4
    assert escaped("x" * 30, 10) == "xxxxxxxxxx… (20 more characters)"
    assert escaped(Html("<b>")) == "<b>"
    assert element("td", "<", title='"', data_v=0, hidden=None, class_="") == '<td title="&quot;" data-v="0">&lt;</td>'
    # text that HTML was added to is no longer known to be HTML
    assert escaped(Html("<b>") + "<i>") == "&lt;b&gt;&lt;i&gt;"


def test_difference_says_all_of_it() -> None:
    text = Parsed(DIFFERENCE).text
    for words in (
        "b is slower by 14 %: likely spills in softcap",
        "launch it with num_warps=8 again",
        "breaks every key torch would ignore every entry",
        f"2,540,111 2,181,402 {MINUS}14 % slower",
        f"285 → 62 {MINUS}78 %",
        "The same on both sides: model, command, shapes, tag dataset.",
        "spills 0 B → 4,144 B a thread, num_warps 8 → 1, registers 80 → 255, 1 more",
        "local load a: 0, b: 1,036 0 1,036 new",
        "10.4 µs 11.9 µs +14 %",
        "12 MiB of graphs were not read: --full reads them.",
        "No recorded choice to compare",
    ):
        assert words in text


def test_other_work_is_said_before_the_causes() -> None:
    page = pages.of_difference(samples.other_work())
    assert page.index('id="work"') < page.index('id="suspects"') < page.index('id="metrics"')
    assert DIFFERENCE.index('id="suspects"') < DIFFERENCE.index('id="work"')
    assert "Not the same work: numbers of the two runs say nothing about the compiler." in page


def test_sentences_have_code_and_arrows() -> None:
    assert worded("run `a -> b <x>` where 8 -> 1, and ` alone") == (
        "run <code>a -&gt; b &lt;x&gt;</code> where 8 → 1, and ` alone"
    )
    assert worded("x" * 30, 10) == "xxxxxxxxxx… (20 more characters)" and worded(Html("<b>")) == "<b>"
    suspect = samples.difference().suspects[0]
    suspect = replace(suspect, words="`f` 8 -> 1", evidence=("warps 8 -> 1",), advice="run `diff a b`")
    page = pages.of_difference(replace(samples.difference(), verdict="likely `f` 8 -> 1", suspects=(suspect,)))
    assert "<h3><code>f</code> 8 → 1</h3>" in page and "<li>warps 8 → 1</li>" in page
    assert "<b>To do: </b>run <code>diff a b</code>" in page and 'class="verdict">likely <code>f</code> 8 → 1<' in page
    assert "<title>block@{1} → block: likely f 8 → 1</title>" in page
    assert "What may be the cause" in page and "Likely causes" not in page


def test_what_was_not_read_stands_at_the_top() -> None:
    notes = ("sources of 2 more kernels differ", *(f"b: {at} files are damaged and left out" for at in range(5)))
    page = pages.of_difference(replace(samples.difference(), notes=notes))
    top = Parsed(page[page.index('class="unread"') - 5 : page.index('class="ends"') - 4]).text
    told = " ".join(f"b: {at} files are damaged and left out" for at in range(3))
    assert top == f"Not all of it could be read {told} 2 more below"
    assert 'class="unread"' in REPORT.split('id="overview"')[0]
    plain = pages.of_difference(replace(samples.difference(), notes=notes[:1]))
    assert 'class="unread"' not in plain and notes[0] in plain


def test_that_b_is_older_is_said() -> None:
    a, b = samples.side("a", created="2026-01-31T08:15:00Z"), samples.side("b", created="2026-01-29T08:15:00Z")
    words = "Note: b was saved 2 days before a: changes read from the newer to the older."
    assert words in pages.of_difference(replace(samples.difference(), a=a, b=b))
    for other in (replace(b, created=a.created), replace(b, created="")):
        assert "was saved" not in pages.of_difference(replace(samples.difference(), a=a, b=other))


def _cpp(bits: int | None, *flags: str) -> Kernel:
    return Kernel("cpp_fused_gelu_0", "c1", "cpp", "", (), "cpu", vector_bits=bits, flags=flags)


def _heads(page: str, identifier: str) -> list[str]:
    return re.findall(r'scope="col"[^>]*>([^<]*)', page.split(f'id="{identifier}"')[1].split("</thead>")[0])


def test_kernels_in_cpp_have_columns_of_their_own() -> None:
    plain = samples.difference()
    pair = KernelPair(_cpp(512, "-O3", "-mavx512f"), _cpp(0, "-O3", "-mno-fma"), "module", (), (), "slower")
    page = pages.of_difference(
        replace(plain, kernels=replace(plain.kernels, changed=(pair,), only_b=(_cpp(256, "-O3"),)))
    )
    assert _heads(page, "kernels-changed") == ["Kernel", "Effect", "Vectors", "Flags"]
    assert "512 bits → scalar -mavx512f → -mno-fma" in Parsed(page).text
    assert _heads(page, "kernels-b") == ["Kernel", "Type", "Device", "Vectors", "Flags"]
    assert "cpp cpu 256 bits -O3" in Parsed(page).text
    assert {"Vectors", "Flags"}.isdisjoint(_heads(DIFFERENCE, "kernels-changed"))
    alike = replace(pair, b=pair.a)
    page = pages.of_difference(replace(plain, kernels=replace(plain.kernels, changed=(alike,))))
    assert "slower 512 bits -O3 -mavx512f" in Parsed(page).text


def test_other_source_is_said_once() -> None:
    plain = samples.difference()
    sourced = replace(plain.kernels.changed[1], changes=(Change("source", "98 lines", "85 lines"),))
    page = pages.of_difference(replace(plain, kernels=replace(plain.kernels, changed=(sourced,))))
    assert "source 98 lines → 85 lines</summary>" in page and "other source" not in page
    assert "other source</summary>" in DIFFERENCE


def test_report_shows_the_history() -> None:
    parsed = Parsed(REPORT)
    labels = parsed.values("aria-label")
    assert "Entries: entries from 280 to 99 in 10 snapshots" in labels
    assert "All steps: cold from 28.0 s to 28.0 s in 10 snapshots; warm from 4.10 s to 4.50 s in 10 snapshots" in labels
    assert parsed.tags["figure"] == 5
    assert "00000008 this one 2026-01-25 08:15 UTC 98 4 37 1.6 MiB" in parsed.text
    assert _heads(REPORT, "history-table")[2:6] == ["Entries", "Graphs", "Triton", "Size"]
    assert "Graphs and Triton count entries, those that only autotuning tried among them." in parsed.text
    history = tuple(replace(point, triton=0, native=5) for point in samples.report().history)
    page = pages.of_report(replace(samples.report(), history=history))
    assert _heads(page, "history-table")[2:6] == ["Entries", "Graphs", "Native", "Size"]


def test_what_was_chosen_is_short_in_the_table_and_whole_below() -> None:
    config = {"EVEN_K": True, "BLOCK_M": 64, "GROUP_M": 8, "num_warps": 4}
    kernel = replace(samples.generated(0), winner=replace(samples.generated(0).winner, config=config))
    unrecorded = replace(samples.generated(1), winner=type(kernel.winner)())
    inventory = replace(samples.report().inventory, kernels=(kernel, unrecorded))
    text = Parsed(pages.of_report(replace(samples.report(), inventory=inventory))).text
    assert "pointwise cuda:0 BLOCK_M=64 num_warps=4 4 24" in text
    assert "EVEN_K=True BLOCK_M=64 GROUP_M=8 num_warps=4 (recorded, tuning took 18 ms)" in text
    assert "pointwise cuda:0 no recorded choice 4 25" in text


def test_nothing_at_all_makes_a_page() -> None:
    empty = samples.difference()
    bare = Difference(
        a=replace(empty.a, fingerprint=None, run=None, proof_seconds=None),
        b=replace(empty.b, fingerprint=None, run=None, proof_seconds=None),
        verdict="no difference",
        suspects=(),
        differs=False,
        work=replace(empty.work, comparable="unknown", differences=(), same=(), unknown=()),
        metrics=(),
        environment=type(empty.environment)(),
        graphs=type(empty.graphs)(),
        kernels=type(empty.kernels)(),
        products=type(empty.products)(),
        coverage=type(empty.coverage)(),
    )
    parsed = Parsed(pages.of_difference(bare))
    assert parsed.faults == [] and "Both hold the same." in parsed.text and "Nothing differs." in parsed.text
    parsed = Parsed(pages.of_report(Report(bare.a, Inventory())))
    assert parsed.faults == [] and parsed.tags["figure"] == 0


def test_numbers_that_are_none_become_dashes() -> None:
    odd = (float("nan"), float("inf"), float("-inf"), 10**400, -5.0, 1e308)
    metrics = tuple(Metric(f"m{at}", value, 1.0, "", "") for at, value in enumerate(odd))
    page = pages.of_difference(replace(samples.difference(), metrics=metrics))
    assert Parsed(page).faults == [] and "nan" not in Parsed(page).text.split()
    history = tuple(Point(str(at), metrics={"m": value}, is_this=at == 0) for at, value in enumerate(odd))
    page = pages.of_report(replace(samples.report(), history=history))
    assert not re.search(r'(?:points|cy|y1|height)="[^"]*(?:nan|inf)', page)


def test_a_table_says_how_many_rows_are_left_out() -> None:
    rows = [tables.Row([tables.text(f"n{at}"), tables.number(at, numbers.amount)]) for at in range(2_005)]
    shown = tables.table("many", "Many", [tables.Column("Name"), tables.Column("N", "number")], rows)
    assert shown.count("<tr") == 2_001 and "5 more rows, not shown here." in shown
    assert "2,000 of 2,000 rows" in shown


def test_columns_without_any_value_are_left_out() -> None:
    rows = [tables.Row([tables.text("a"), tables.number(None, numbers.amount), tables.text("")])]
    shown = tables.table(
        "one", "One", [tables.Column("Name"), tables.Column("N", "number"), tables.Column("Why")], rows
    )
    assert re.findall(r"<th[^>]*scope=\"col\"[^>]*>([^<]*)", shown) == ["Name"]
    assert "tools" not in shown


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (21_500, 12_800, f"{MINUS}40 %"),
        (1.0, 1.032, "+3.2 %"),
        (5, 5, "same"),
        (9_300, 61_200, f"{TIMES}6.6"),
        (1, 45, f"{TIMES}45"),
        (0, 3, "new"),
        (3, 0, "gone"),
        (None, 3, ""),
        (float("nan"), 3, ""),
        (-1, 3, ""),
    ],
)
def test_change(a: float | None, b: float | None, words: str) -> None:
    assert numbers.change(a, b) == words


def test_quantities() -> None:
    assert [numbers.seconds(value) for value in (0, 0.018, 4.3, 31.6, 125.4)] == [
        "0 s",
        "18 ms",
        "4.30 s",
        "31.6 s",
        "125 s",
    ]
    assert [numbers.milliseconds(value) for value in (0.0571, 0.241, 1.25, 0)] == [
        "57.1 µs",
        "241 µs",
        "1.25 ms",
        "0 ms",
    ]
    assert [numbers.amount(value) for value in (21_500, 0.0571234, 2_181_402.6)] == ["21,500", "0.0571234", "2,181,403"]


def test_unified_diff_side_by_side() -> None:
    rows = list(sources.of_unified(samples.ATTENTION))
    changed = [(row.a.number, row.b.number) for row in rows if row.kind == "changed"]
    assert changed == [(44, 44), (89, 90), (0, 91)]
    assert [row.kind for row in rows].count("gap") == 1
    shown = sources.beside(rows)
    assert "<del>tf32</del>" in shown and "<ins>ieee</ins>" in shown
    assert Parsed(shown).faults == []


def test_two_sources_side_by_side() -> None:
    a, b = "one\ntwo\nthree\n--- x\nfour", "one\n2\nthree\nfour\nfive"
    rows = [(row.kind, row.a, row.b) for row in sources.of_sources(a, b)]
    assert rows == [
        ("same", (1, "one"), (1, "one")),
        ("changed", (2, "two"), (2, "2")),
        ("same", (3, "three"), (3, "three")),
        ("changed", (4, "--- x"), (0, "")),
        ("same", (5, "four"), (4, "four")),
        ("changed", (0, ""), (5, "five")),
    ]
    assert sources.beside(sources.of_sources(a, a)) == ""


def test_many_and_long_lines_are_cut() -> None:
    long = "x" * 5_000
    shown = sources.listing("\n".join([long] * 500))
    assert shown.count("<li>") == 400 and "100 more lines, not shown here." in shown
    assert "(4,400 more characters)" in shown and len(shown) < 400 * 700
    lines = ["@@ -1,500 +1,500 @@", *(f"-{at}" for at in range(500)), *(f"+{at}!" for at in range(500))]
    shown = sources.beside(sources.of_unified(lines))
    assert shown.count("<tr") == 401 and "100 more lines, not shown here." in shown


def test_hostile_diffs_are_no_trouble() -> None:
    for lines in (
        ["+", "-", "@@", "@@ -9999999999 +1 @@"],
        ["---"],
        ["\\ No newline"],
        ["+++ b", "+x", "-y"] * 3,
        [""] * 9,
    ):
        assert Parsed(sources.beside(sources.of_unified(lines))).faults == []


def _texts(plot: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)", plot)


def _plotted(values: list[float], form: numbers.Form = numbers.amount) -> str:
    return charts.plot("n", ["2026-01-01", "2026-01-02"], [charts.Line("", values)], form)


@pytest.mark.parametrize(
    ("values", "form", "ticks", "broken"),
    [
        ([877_000, 877_021], numbers.size, ["0", "500 KiB", "1,000 KiB"], False),  # 21 bytes are no steep line
        ([2_181_402, 2_540_111], numbers.amount, ["2M", "2.2M", "2.4M", "2.6M"], True),
        ([1000, 1030], numbers.amount, ["1,000", "1,010", "1,020", "1,030"], True),
        ([0.95, 1.0], numbers.amount, ["0.94", "0.96", "0.98", "1"], True),
        ([100.0, 122.6], numbers.seconds, ["100 s", "110 s", "120 s", "130 s"], True),
        ([2.1 * 1024**2, 2.6 * 1024**2], numbers.size, ["2 MiB", "2.2 MiB", "2.4 MiB", "2.6 MiB"], True),
        ([5, 5], numbers.amount, ["0", "2", "4", "6"], False),
        ([0, 0], numbers.amount, ["0", "1"], False),
        ([-5, 5], numbers.amount, ["-5", "0", "5"], False),
        ([-1030, -1000], numbers.amount, ["-1,030", "-1,020", "-1,010", "-1,000"], True),
        ([0.01, 0.05], numbers.seconds, ["0", "20 ms", "40 ms", "60 ms"], False),
    ],
)
def test_ticks_differ_and_a_broken_axis_says_so(
    values: list[float], form: numbers.Form, ticks: list[str], broken: bool
) -> None:
    plot = _plotted(values, form)
    assert _texts(plot)[:-2] == ticks
    assert ('class="break"' in plot) == ("the axis does not begin at 0" in plot) == broken


@given(st.lists(st.floats(-1e18, 1e18), min_size=2, max_size=2), st.sampled_from([numbers.amount, numbers.size]))
def test_no_two_ticks_are_the_same(values: list[float], form: numbers.Form) -> None:
    ticks = _texts(_plotted(values, form))[:-2]
    assert len(set(ticks)) == len(ticks) >= 2


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        (["2026-01-01 08:15:00 UTC", "2026-01-02 08:15:00 UTC"], ["2026-01-01", "2026-01-02"]),
        (["2026-01-01 08:15:00 UTC", "2026-01-01 09:15:00 UTC"], ["2026-01-01 08:15", "2026-01-01 09:15"]),
        (["2026-01-01 08:15:00 UTC", "2026-01-01 08:15:42 UTC"], ["2026-01-01 08:15:00", "2026-01-01 08:15:42"]),
        (["2026-01-01 08:15:00 UTC", "2026-01-01 08:15:00 UTC"], ["2026-01-01 08:15"]),
        (["", ""], [""]),
    ],
)
def test_the_ends_of_the_axis_of_time_are_never_the_same(labels: list[str], shown: list[str]) -> None:
    plot = charts.plot("n", labels, [charts.Line("", [0.0, 3.0])], numbers.amount)
    assert _texts(plot)[4:] == shown


def test_bars_and_plots_can_be_read_without_colour() -> None:
    shown = charts.bars("Sizes", [charts.Bar("triton", 50, 100), charts.Bar("none", None, 0)], numbers.size)
    assert "<title>a: 50 B, b: 100 B</title>" in shown
    assert re.findall(r'class="bar-(.)" width="([^"]*)"', shown) == [
        ("a", "50%"),
        ("b", "100%"),
        ("a", "0"),
        ("b", "0"),
    ]
    plot = charts.plot("tok_s", ["2026-01-01", "2026-01-02"], [charts.Line("", [1.0, 3.0])], numbers.amount, 1)
    assert 'aria-label="tok_s: from 1 to 3 in 2 snapshots"' in plot
    assert "<title>2026-01-02: 3</title>" in plot and 'class="this"' in plot


def _named(pair: KernelPair, number: int) -> KernelPair:
    name = f"triton_poi_fused_add_mul_view_transpose_{number}"
    return replace(pair, a=replace(pair.a, name=name), b=replace(pair.b, name=name))


def test_a_page_of_5000_kernels_stays_small() -> None:
    plain = samples.difference()
    load = "    tmp = tl.load(in_ptr0 + (x0 + 256*r0_1), xmask, other=0.0)"
    source = ("@@ -1,300 +1,300 @@", *(f"{'-+ '[at % 3]}{load}" for at in range(300)))
    pair = replace(plain.kernels.changed[1], source=source)
    pairs = tuple(_named(pair, number) for number in range(5_000))
    lone: tuple[Kernel, ...] = tuple(pair.a for pair in pairs)
    began = time.process_time()
    page = pages.of_difference(replace(plain, kernels=replace(plain.kernels, changed=pairs, only_a=lone, only_b=lone)))
    assert time.process_time() - began < 10
    assert len(page.encode()) < 8_000_000
    assert "3,000 more rows, not shown here." in page and "rows above do not open, to keep this page small" in page


def test_a_report_of_5000_kernels_stays_small() -> None:
    source = "\n".join(f"    tmp{at} = tl.load(in_ptr{at})" for at in range(600))
    kernels = tuple(replace(samples.generated(at), source=source) for at in range(5_000))
    inventory = replace(samples.report().inventory, kernels=kernels)
    page = pages.of_report(replace(samples.report(), inventory=inventory))
    assert len(page.encode()) < 8_000_000 and "200 more lines, not shown here." in page


def test_no_data_stands_within_the_script() -> None:
    script = re.findall(r"<script>(.*?)</script>", DIFFERENCE, re.S)[0]
    assert json.dumps("softcap")[1:-1] not in script
    assert re.findall(r"<script>(.*?)</script>", REPORT, re.S) == [script]
