"""The page of a comparison: the verdict first, then what it rests on."""

from __future__ import annotations

from ..diffing.models import Difference, Environment, Metric, Suspect, Work
from ..inventory.models import Graph, Kernel
from ..units import count, older_than
from . import graphs, kernels, numbers, places, products
from .charts import Bar, bars
from .markup import NOTHING, Html, arrows, element, escaped, joined, worded
from .page import Section, frame, heading, part
from .parts import Tile, became, changes, devices, ends, notes, sides, tiles, unread
from .room import Room
from .tables import items, letter, tag

_COMPARABLE = {
    "yes": "Both did the same work, as far as is recorded.",
    "no": "Not the same work: numbers of the two runs say nothing about the compiler.",
    "unknown": "Nothing that could tell is recorded on both sides.",
}


def of_difference(difference: Difference) -> str:
    """Two caches compared, as a page for a browser: one file, which loads nothing else."""
    room = Room()
    environment = difference.environment
    number = sum(map(len, (environment.facts, environment.variables, environment.packages, environment.config)))
    work = Section("work", "Same work?", _work(difference.work), difference.work.comparable)
    suspects = Section("suspects", "What may be the cause", _suspects(difference), str(len(difference.suspects)))
    first = [work, suspects] if difference.work.comparable == "no" else [suspects, work]
    sections = [
        *first,
        Section("metrics", "Metrics", _metrics(difference.metrics), str(len(difference.metrics))),
        Section("overview", "Overview", _overview(difference)),
        Section("caches", "The two caches", sides([difference.a, difference.b])),
        Section("environment", "Environment", _environment(environment), str(number)),
        Section("graphs", "Graphs", _graphs(difference), _moved(difference)),
        Section("kernels", "Kernels", _kernels(difference, room), str(len(difference.kernels.changed))),
        Section("products", "Products", _products(difference, room), str(len(difference.products.changed))),
        Section("coverage", "Coverage", _coverage(difference)),
        Section("bytes", "Where the bytes are", places.bytes_by_kind(difference.coverage.bytes)),
        Section("seconds", "Where the seconds are", _seconds(difference), lead=_SECONDS),
        Section("notes", "Notes", notes(difference.notes), str(len(difference.notes))),
    ]
    title = f"{difference.a.label} → {difference.b.label}: {difference.verdict}"
    return frame(arrows(title).replace("`", ""), _head(difference), sections)


_SECONDS = (
    "Of graphs and kernels that are not the same on both sides; what is shared was compiled once and is left out."
)


def _head(difference: Difference) -> Html:
    both = {"a": difference.a, "b": difference.b}
    title = joined([joined([letter(name), " ", escaped(side.label, 80)]) for name, side in both.items()], " → ")
    verdict = element("p", worded(difference.verdict), class_="verdict")
    older = older_than(difference.a.created, difference.b.created)
    note = element("p", f"Note: {older}.", class_="order") if older else NOTHING
    return heading("Comparison of two caches", title, joined([verdict, unread(difference.notes), ends(both), note]))


def _suspects(difference: Difference) -> Html:
    if not difference.suspects:
        words = (
            "Nothing that was found explains a difference in speed." if difference.differs else "Both hold the same."
        )
        return element("p", words)
    return element("ol", joined(map(_suspect, difference.suspects)), class_="suspects")


def _suspect(suspect: Suspect) -> Html:
    advice = (
        element("p", element("b", "To do: "), worded(suspect.advice), class_="advice") if suspect.advice else NOTHING
    )
    tags = element("p", tag(suspect.likelihood), " ", tag(suspect.effect), class_="tags")
    return element("li", tags, element("h3", worded(suspect.words)), items(suspect.evidence), advice)


def _work(work: Work) -> Html:
    words = element(
        "p",
        _COMPARABLE.get(work.comparable, work.comparable),
        class_="answer no" if work.comparable == "no" else "answer",
    )
    same = f"The same on both sides: {', '.join(work.same)}." if work.same else ""
    unknown = f"Not recorded on both sides: {', '.join(work.unknown)}." if work.unknown else ""
    lines = [element("p", line, class_="quiet") for line in (same, unknown) if line]
    return joined([words, changes("work-changes", "What differs in the work", work.differences), *lines])


def _metrics(metrics: tuple[Metric, ...]) -> Html:
    rows = [Bar(_metric(each), each.a, each.b, each.verdict if each.verdict != "same" else "") for each in metrics]
    return bars("Each with a scale of its own", rows, numbers.amount, each=True)


def _metric(metric: Metric) -> Html:
    remark = element("span", f" {metric.better} is better", class_="quiet") if metric.better else NOTHING
    return joined([metric.name, remark])


def _overview(difference: Difference) -> Html:
    of_graphs, of_kernels, of_products = difference.graphs, difference.kernels, difference.products
    covered = difference.coverage
    entries, size = (
        [sum(both[at] for both in kinds.values()) for at in (0, 1)] for kinds in (covered.entries, covered.bytes)
    )
    compiling = [side.run.compiling if side.run else None for side in (difference.a, difference.b)]
    content = [
        Tile("Entries", became(*map(numbers.amount, entries)), numbers.change(*entries)),
        Tile("Size", became(*map(numbers.size, size)), numbers.change(*size)),
        Tile("Shared graphs", escaped(f"{of_graphs.shared:,}"), f"{len(of_graphs.pairs):,} under another key"),
        Tile(
            "Graphs of one side", escaped(f"{len(of_graphs.only_a):,} / {len(of_graphs.only_b):,}"), "only a / only b"
        ),
        Tile("Kernels that differ", escaped(f"{len(of_kernels.changed):,}"), f"{of_kernels.same:,} the same"),
        Tile(
            "Kernels of one side",
            escaped(f"{len(of_kernels.only_a):,} / {len(of_kernels.only_b):,}"),
            "only a / only b",
        ),
        Tile("Products that differ", escaped(f"{len(of_products.changed):,}"), f"{of_products.same:,} the same"),
    ]
    if any(value is not None for value in compiling):
        shown = [numbers.shown(value, numbers.seconds) for value in compiling]
        content.append(Tile("Compiling", became(*shown), numbers.change(*compiling)))
    return tiles(content)


def _environment(environment: Environment) -> Html:
    return joined(
        [
            part(
                "Versions and machine",
                changes("environment-facts", "Facts that differ", environment.facts, environment.breaking),
            ),
            part("Settings of Inductor", changes("environment-config", "Settings that differ", environment.config)),
            part("Variables", changes("environment-variables", "Variables that differ", environment.variables)),
            part("Packages", changes("environment-packages", "Packages that differ", environment.packages)),
        ]
    ) or element("p", "Nothing differs.")


def _moved(difference: Difference) -> str:
    found = difference.graphs
    return str(len(found.pairs) + len(found.only_a) + len(found.only_b))


def _graphs(difference: Difference) -> Html:
    found = difference.graphs
    shared = element("p", f"{count(found.shared, 'graph')} with the same key on both sides.")
    return joined(
        [
            shared,
            part("The same graph, another key", graphs.pairs(found.pairs)),
            part("Only in a", graphs.single("graphs-a", "Graphs only in a", found.only_a)),
            part("Only in b", graphs.single("graphs-b", "Graphs only in b", found.only_b)),
        ]
    )


def _kernels(difference: Difference, room: Room) -> Html:
    found = difference.kernels
    told = [f"{count(found.same, 'kernel')} the same on both sides."]
    told += [f"{found.rekeyed:,} of them under another key: Triton builds them again."] * bool(found.rekeyed)
    told += [f"{found.unread:,} more on both sides not looked at (--full)."] * bool(found.unread)
    same = element("p", " ".join([*told, "Columns of pairs sort by the change from a to b."]))
    return joined(
        [
            same,
            part("Changed", kernels.changed(found, room)),
            part("Only in a", kernels.single("kernels-a", "Kernels only in a", found.only_a, room)),
            part("Only in b", kernels.single("kernels-b", "Kernels only in b", found.only_b, room)),
            part("No recorded choice to compare", kernels.unrecorded(found.unrecorded)),
        ]
    )


def _products(difference: Difference, room: Room) -> Html:
    found = difference.products
    if not (found.same or found.changed or found.only_a or found.only_b):
        return NOTHING
    return joined(
        [
            element("p", f"{count(found.same, 'product')} with the same winner on both sides."),
            part("Another winner or other timings", products.pairs(found.changed, room)),
            part("Measured only in a", products.single(found.only_a, room)),
            part("Measured only in b", products.single(found.only_b, room)),
        ]
    )


def _coverage(difference: Difference) -> Html:
    covered = difference.coverage
    entries = {**covered.entries, **{f"in {path}": pair for path, pair in covered.triton_dirs.items()}}
    return joined(
        [
            items(covered.words),
            part("Graphs by device", devices([(each.device, (each.a, each.b)) for each in covered.devices])),
            part("Entries", places.entries_by_kind(entries)),
        ]
    )


def _seconds(difference: Difference) -> Html:
    return places.seconds(_graph_seconds(difference), _kernel_seconds(difference))


def _graph_seconds(difference: Difference) -> list[tuple[Graph, places.Both]]:
    found = difference.graphs
    rows: list[tuple[Graph, places.Both]] = [(each.b, (each.a.seconds, each.b.seconds)) for each in found.pairs]
    rows += [(graph, (graph.seconds, None)) for graph in found.only_a]
    return rows + [(graph, (None, graph.seconds)) for graph in found.only_b]


def _kernel_seconds(difference: Difference) -> list[tuple[Kernel, places.Both]]:
    found = difference.kernels
    rows: list[tuple[Kernel, places.Both]] = [
        (each.b, (each.a.winner.tuning_seconds, each.b.winner.tuning_seconds)) for each in found.changed
    ]
    rows += [(kernel, (kernel.winner.tuning_seconds, None)) for kernel in found.only_a]
    return rows + [(kernel, (None, kernel.winner.tuning_seconds)) for kernel in found.only_b]
