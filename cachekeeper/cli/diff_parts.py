"""The parts of `cachekeeper diff` on the screen, from the work to the coverage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..units import count, format_bytes, format_number, listed, shortened, spaced
from .one_kernel import called
from .output import Output, table, wrapped

if TYPE_CHECKING:
    from ..diffing.models import Change, Difference, GraphPair, KernelPair
    from ..inventory.models import Coverage, Graph, Kernel, Product

LABEL = 12
CHANGES = 6
_ROWS = 8
_HALF = 30  # of a line, for one of two names
_COLOURS = {"slower": "red", "faster": "green", "slower start": "yellow", "mixed": "yellow"}


# Is it the same work?


_COMPARABLE = {
    "yes": "comparable",
    "no": "NOT THE SAME WORK: the numbers of the two runs cannot be compared",
    "unknown": "cannot be told: too little is recorded on both sides",
}


def _say_work(output: Output, found: Difference) -> None:
    output.line()
    line(output, "work", _COMPARABLE[found.work.comparable])
    for change in found.work.differences:
        line(output, "", _changed(change))
    if found.work.same:
        line(output, "", f"the same: {', '.join(found.work.same)}")
    if found.work.unknown:
        line(output, "", f"not recorded on both sides: {', '.join(found.work.unknown)}")
    for number, metric in enumerate(found.metrics):
        share = f" ({metric.b / metric.a - 1:+.1%})" if metric.a else ""
        verdict = f", {metric.verdict}" if metric.verdict and found.work.comparable != "no" else ""
        words = f"{metric.name} {format_number(metric.a)} -> {format_number(metric.b)}{share}{verdict}"
        line(output, "metrics" if not number else "", words)


def _changed(change: Change) -> str:
    words = f"   {change.words}" if change.words else ""
    return f"{change.name}  {change.a} -> {change.b}{words}"


# Environment


def _say_environment(output: Output, found: Difference) -> None:
    output.line()
    environment = found.environment
    lines = [_changed(change) for change in environment.facts]
    lines += [f"variable {_changed(change)}" for change in environment.variables]
    lines += [f"setting {_changed(change)}" for change in environment.config]
    lines += [f"package {_changed(change)}" for change in environment.packages]
    if environment.breaking:
        alone = "each alone makes" if len(environment.breaking) > 1 else "alone makes"
        lines.insert(0, f"{', '.join(environment.breaking)}: {alone} every key another one")
    _some(output, "environment", lines or ["the same"], most=3 * _ROWS)


# Graphs


def _say_graphs(output: Output, found: Difference) -> None:
    output.line()
    graphs = found.graphs
    counts = [
        f"{graphs.shared:,} with the same key",
        *([f"{len(graphs.pairs):,} the same graph under another key"] if graphs.pairs else []),
        *([f"{len(graphs.only_a):,} only in a"] if graphs.only_a else []),
        *([f"{len(graphs.only_b):,} only in b"] if graphs.only_b else []),
    ]
    line(output, "graphs", ", ".join(counts))
    _say_pairs(output, graphs.pairs)
    for label, only in (("only in a", graphs.only_a), ("only in b", graphs.only_b)):
        _some(output, f"  {label}", [_graph(graph) for graph in only])


def _say_pairs(output: Output, pairs: Iterable[GraphPair]) -> None:
    """Graphs whose keys differ for the same reason are said together."""
    reasons: dict[tuple[str, ...], list[GraphPair]] = {}
    for pair in pairs:
        reasons.setdefault(pair.because, []).append(pair)
    for because, together in list(reasons.items())[:_ROWS]:
        line(output, "  other key", listed([_graph(pair.b) for pair in together], 1))
        for words in because[:CHANGES]:
            line(output, "    because", words)
        if not because:
            line(output, "    because", "of something that neither side records")
    if len(reasons) > _ROWS:
        line(output, "", f"and for {count(len(reasons) - _ROWS, 'more reason')} (all of them with --json)")


def _graph(graph: Graph) -> str:
    """As "backward of step (train.py:12) on cuda:0, f3abc..., 12 kernels"."""
    what = " of ".join(filter(None, (graph.direction or "a graph", graph.function)))
    where = f" on {graph.device}" if graph.device else ""
    took = f", {graph.seconds:.1f} s" if graph.seconds else ""
    return f"{what}{where}, {graph.key[:9]}, {count(len(set(graph.kernels)), 'kernel')}{took}"


# Kernels


def _say_kernels(output: Output, found: Difference) -> None:
    output.line()
    kernels = found.kernels
    counts = [
        (kernels.same, "the same"),
        (len(kernels.changed), "differs" if len(kernels.changed) == 1 else "differ"),
        (len(kernels.only_a), "only in a"),
        (len(kernels.only_b), "only in b"),
        (kernels.unread, "on both sides not looked at (--full)"),
    ]
    told = [f"{number:,} {words}" for number, words in counts if number] or ["none"]
    line(output, "kernels", ", ".join(told))
    if kernels.rekeyed:
        line(output, "", f"{kernels.rekeyed:,} of the same under another key: Triton builds them again")
    for pair in kernels.changed[:_ROWS]:
        _say_pair(output, pair)
    if len(kernels.changed) > _ROWS:
        line(output, "", f"and {len(kernels.changed) - _ROWS:,} more (all of them with --json)")
    for label, only in (("only in a", kernels.only_a), ("only in b", kernels.only_b)):
        _some(output, f"  {label}", [_kernel(kernel) for kernel in only])
    if kernels.unrecorded:
        number, so = count(len(kernels.unrecorded), "kernel"), "it is" if len(kernels.unrecorded) == 1 else "they are"
        words = f'of autotuning is recorded for {number} on one side or both, so {so} not "the same":'
        line(output, "  no choice", words)
        _some(output, "", [shortened(name) for name in kernels.unrecorded], most=3)


def _say_pair(output: Output, pair: KernelPair) -> None:
    name = shortened(pair.b.name)
    if pair.a.name != pair.b.name:
        name = f"{shortened(pair.a.name, _HALF)} -> {shortened(pair.b.name, _HALF)}"
    output.line(f"  {spaced(name, f'  {pair.effect}' if pair.effect else '')}", _COLOURS.get(pair.effect, ""))
    told = [f"{change.name} {change.a} -> {change.b}" for change in pair.changes]
    if pair.source and not any(change.name == "source" for change in pair.changes):
        told.append("source")
    wrap(output, listed(told, CHANGES), "    ", "    ")


def _kernel(kernel: Kernel) -> str:
    return called(kernel, shortened(kernel.name))


# Products


def _say_products(output: Output, found: Difference) -> None:
    products = found.products
    if not (products.same or products.changed or products.only_a or products.only_b):
        return
    output.line()
    counts = [
        f"{products.same:,} with the same winner",
        *([f"{len(products.changed):,} with another"] if products.changed else []),
        *([f"{len(products.only_a):,} measured only in a"] if products.only_a else []),
        *([f"{len(products.only_b):,} only in b"] if products.only_b else []),
    ]
    line(output, "products", ", ".join(counts))
    for pair in products.changed[:_ROWS]:
        output.line(f"  {pair.b.operation} {pair.b.inputs}")
        for change in pair.changes:
            wrap(output, _changed(change), "    ", "      ")
    for label, only in (("only in a", products.only_a), ("only in b", products.only_b)):
        _some(output, f"  {label}", [_product(product) for product in only])


def _product(product: Product) -> str:
    best = product.best
    won = f": {best.name}, {best.milliseconds:.4f} ms of a call" if best and best.milliseconds is not None else ""
    return f"{product.operation} {product.inputs}{won}, {count(len(product.options), 'option')}"


# Coverage


def _say_coverage(output: Output, found: Difference) -> None:
    output.line()
    coverage = found.coverage
    totals = [sum(pair[side] for pair in coverage.entries.values()) for side in (0, 1)]
    sizes = [sum(pair[side] for pair in coverage.bytes.values()) for side in (0, 1)]
    line(
        output,
        "coverage",
        f"{totals[0]:,} -> {count(totals[1], 'entry')}, {format_bytes(sizes[0])} -> {format_bytes(sizes[1])}",
    )
    for words in coverage.words:
        line(output, "", words)
    kinds = [[kind, f"{one:,}", f"{other:,}"] for kind, (one, other) in coverage.entries.items()]
    kernels = [[f"  in {path}", f"{one:,}", f"{other:,}"] for path, (one, other) in coverage.triton_dirs.items()]
    rows = [["entries", "a", "b"], *kinds, *kernels]
    devices = [["graphs of", "forward", "backward", "inference", "kernels"]]
    for pair in coverage.devices:
        devices.append([pair.device or "unknown", *_coverage(pair.a, pair.b)])
    for shown, right in ((rows, (1, 2)), (devices, (1, 2, 3, 4))):
        if len(shown) > 1:
            for row in table(shown, right):
                output.line(f"  {row}")


def _coverage(a: Coverage, b: Coverage) -> list[str]:
    names = ("forward", "backward", "inference", "kernels")
    return [f"{getattr(a, name):,} -> {getattr(b, name):,}" for name in names]


# Lines


def _some(output: Output, label: str, lines: Sequence[str], most: int = _ROWS) -> None:
    for number, text in enumerate(lines[:most]):
        line(output, label if not number else "", text)
    if len(lines) > most:
        line(output, "", f"and {len(lines) - most:,} more (all of them with --json)")


def line(output: Output, label: str, text: str) -> None:
    """A label and what there is to say, wrapped beside it."""
    wrap(output, text, f"{label:<{LABEL}} ")


def wrap(output: Output, text: str, first: str, others: str | None = None) -> None:
    """Lines that begin with `first`, and all but the first with `others`, or as far in as labels are wide."""
    for each in wrapped(text, first, " " * (LABEL + 1) if others is None else others):
        output.line(each)


SAY = {
    "work": _say_work,
    "environment": _say_environment,
    "graphs": _say_graphs,
    "kernels": _say_kernels,
    "products": _say_products,
    "coverage": _say_coverage,
}
