"""cachekeeper diff"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from ..stores import Store
from ..units import age_seconds, count, format_bytes, format_duration, short_id, spaced
from .options import examples, output_options, store_options
from .output import Output, table, wrapped

if TYPE_CHECKING:
    from ..diffing.models import Change, Difference, GraphPair, KernelPair, Side, Suspect
    from ..inventory.models import Binary, Coverage, Graph, Kernel, Product, Winner
    from ..verbs.diff import DiffResult

_FIELD = "  "
PARTS = ("work", "environment", "graphs", "kernels", "products", "coverage")
_LABEL = 12
_ROWS = 8
_CHANGES = 6
_NOTES = 6
_COLOURS = {"slower": "red", "faster": "green", "slower start": "yellow", "mixed": "yellow"}


@click.command(
    name="diff",
    epilog=examples(
        "cachekeeper diff drafter@{1} drafter",
        "cachekeeper diff drafter                 # the same: the last two of a name",
        "cachekeeper diff 51d9aa30 /tmp/torchinductor_me --only kernels",
        "cachekeeper diff drafter --kernel softcap",
        "cachekeeper diff drafter --html diff.html",
    ),
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="[B]", required=False)
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="Show this part alone; may be repeated.")
@click.option("--kernel", metavar="NAME", default="", help="Only kernels with NAME in their name, in full detail.")
@click.option("--html", metavar="FILE", help="Write a page of its own: no network, dark and light.")
@click.option("--force", is_flag=True, help="With --html: replace FILE, whatever it is.")
@click.option("--exit-code", is_flag=True, help="Exit 3 where anything differs.")
@click.option("--full", is_flag=True, help="Read everything of very large caches, too.")
@store_options
@output_options
def command(
    a: str,
    b: str | None,
    only: tuple[str, ...],
    kernel: str,
    html: str | None,
    force: bool,
    exit_code: bool,
    full: bool,
    store: Store,
    as_json: bool,
    quiet: bool,
) -> int:
    """Say what is different between two caches, whether it matters, and whether they can be compared at all.

    A and B are ids, names, name@{1} for the one before, "latest", or directories (with a slash, as ./cache). A alone
    is a name: its snapshot before against its last. Changes read A -> B. Nothing is unpickled, loaded or run, and no
    GPU is needed.
    """
    from ..verbs.diff import diff

    if html == "-" and as_json:
        raise click.UsageError("--json and --html - both want standard output.", click.get_current_context())
    output = Output(as_json, quiet)
    result = diff(a, b, store=store, kernel=kernel, full=full, progress=output.progress())
    if html:
        _write(output, result, html, force)
    elif kernel:
        say_kernels(output, result)
    else:
        say(output, result, only)
    if html != "-":
        output.result("diff", {"differs": result.differs, **vars(result.difference), "same": result.same})
    return 3 if exit_code and result.differs else 0


def _write(output: Output, result: DiffResult, html: str, force: bool) -> None:
    from ..pages import of_difference
    from .pages import write_page

    write_page(html, of_difference(result.difference), force)
    if html != "-":
        _say_sides(output, result.difference)
        _say_verdict(output, result.difference)
        output.line()
        output.ok(f"Wrote {html}")


def say(output: Output, result: DiffResult, only: Sequence[str] = ()) -> None:
    """A comparison in words.

    Args:
        only: those of PARTS that are said; empty: all, and the verdict first.
    """
    found = result.difference
    _say_sides(output, found)
    if not only:
        _say_verdict(output, found)
    for part in only or PARTS:
        _SAY[part](output, found)
    for note in found.notes[:_NOTES]:
        output.line()
        _wrap(output, f"note: {note}", "", "      ")
    if found.kernels.changed and "kernels" in (only or PARTS):
        output.line()
        output.hint("one kernel in full: `--kernel NAME`; all of it as a page: `--html FILE`")


def _say_sides(output: Output, found: Difference) -> None:
    from ..environment import summary

    rows = []
    for letter, side in (("a", found.a), ("b", found.b)):
        age = f"{format_duration(age_seconds(side.created))} old" if side.created else "live"
        machine = summary(side.fingerprint) if side.fingerprint else ""
        rows.append([letter, short_id(side.id), _called(side), age, machine])
    for line in table(rows):
        output.line(line)
    for letter, side in (("a", found.a), ("b", found.b)):
        if side.message:
            _wrap(output, side.message, f"{letter}: ", "   ")


def _called(side: Side) -> str:
    return side.name if side.id.startswith(side.label) and side.name else side.label


# The verdict


def _say_verdict(output: Output, found: Difference) -> None:
    output.line()
    _wrap(output, found.verdict, "", "")
    for suspect in found.suspects:
        output.line()
        _say_suspect(output, suspect)


def _say_suspect(output: Output, suspect: Suspect) -> None:
    head = f"{suspect.likelihood:<{_LABEL}} "
    effect = f"{suspect.effect}: " if suspect.effect else ""
    _wrap(output, effect + suspect.words, head)
    for number, line in enumerate(suspect.evidence[:_CHANGES]):
        _wrap(output, line, f"  {'as' if not number else '':<{_LABEL - 2}} ")
    if len(suspect.evidence) > _CHANGES:
        _line(output, "", f"and {len(suspect.evidence) - _CHANGES:,} more")
    if suspect.advice:
        _wrap(output, suspect.advice, f"  {'to do':<{_LABEL - 2}} ")


# Is it the same work?


_COMPARABLE = {
    "yes": "comparable",
    "no": "NOT THE SAME WORK: the numbers of the two runs cannot be compared",
    "unknown": "cannot be told: too little is recorded on both sides",
}


def _say_work(output: Output, found: Difference) -> None:
    output.line()
    _line(output, "work", _COMPARABLE[found.work.comparable])
    for change in found.work.differences:
        _line(output, "", _changed(change))
    if found.work.same:
        _line(output, "", f"the same: {', '.join(found.work.same)}")
    if found.work.unknown:
        _line(output, "", f"not recorded on both sides: {', '.join(found.work.unknown)}")
    for number, metric in enumerate(found.metrics):
        share = f" ({metric.b / metric.a - 1:+.1%})" if metric.a else ""
        verdict = f", {metric.verdict}" if metric.verdict and found.work.comparable != "no" else ""
        words = f"{metric.name} {_number(metric.a)} -> {_number(metric.b)}{share}{verdict}"
        _line(output, "metrics" if not number else "", words)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


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
    _line(output, "graphs", ", ".join(counts))
    _say_pairs(output, graphs.pairs)
    for label, only in (("only in a", graphs.only_a), ("only in b", graphs.only_b)):
        _some(output, f"  {label}", [_graph(graph) for graph in only])


def _say_pairs(output: Output, pairs: Iterable[GraphPair]) -> None:
    """Graphs whose keys differ for the same reason are said together."""
    reasons: dict[tuple[str, ...], list[GraphPair]] = {}
    for pair in pairs:
        reasons.setdefault(pair.because, []).append(pair)
    for because, together in list(reasons.items())[:_ROWS]:
        more = f" and {len(together) - 1:,} more" if len(together) > 1 else ""
        _line(output, "  other key", _graph(together[0].b) + more)
        for words in because[:_CHANGES]:
            _line(output, "    because", words)
        if not because:
            _line(output, "    because", "of something that neither side records")
    if len(reasons) > _ROWS:
        _line(output, "", f"and for {len(reasons) - _ROWS:,} more reasons (all of them with --json)")


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
        f"{kernels.same:,} the same",
        *([f"{len(kernels.changed):,} differ"] if kernels.changed else []),
        *([f"{len(kernels.only_a):,} only in a"] if kernels.only_a else []),
        *([f"{len(kernels.only_b):,} only in b"] if kernels.only_b else []),
    ]
    _line(output, "kernels", ", ".join(counts))
    for pair in kernels.changed[:_ROWS]:
        _say_pair(output, pair)
    if len(kernels.changed) > _ROWS:
        _line(output, "", f"and {len(kernels.changed) - _ROWS:,} more (all of them with --json)")
    for label, only in (("only in a", kernels.only_a), ("only in b", kernels.only_b)):
        _some(output, f"  {label}", [_kernel(kernel) for kernel in only])
    if kernels.unrecorded:
        number = count(len(kernels.unrecorded), "kernel")
        words = f'of autotuning is recorded for {number} on one side or both, so they are not "the same":'
        _line(output, "  no choice", words)
        _some(output, "", list(kernels.unrecorded), most=3)


def _say_pair(output: Output, pair: KernelPair) -> None:
    name = pair.b.name if pair.a.name == pair.b.name else f"{pair.a.name} -> {pair.b.name}"
    output.line(f"  {spaced(name, f'  {pair.effect}' if pair.effect else '')}", _COLOURS.get(pair.effect, ""))
    told = [f"{change.name} {change.a} -> {change.b}" for change in pair.changes]
    told += ["source"] * bool(pair.source)
    more = [f"and {len(told) - _CHANGES:,} more"] if len(told) > _CHANGES else []
    _wrap(output, ", ".join(told[:_CHANGES] + more), "    ", "    ")


def _kernel(kernel: Kernel) -> str:
    return spaced(
        kernel.name, f"({kernel.type})" if kernel.type else "", f"on {kernel.device}" if kernel.device else ""
    )


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
    _line(output, "products", ", ".join(counts))
    for pair in products.changed[:_ROWS]:
        output.line(f"  {pair.b.operation} {pair.b.inputs}")
        for change in pair.changes:
            _wrap(output, _changed(change), "    ", "      ")
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
    _line(
        output,
        "coverage",
        f"{totals[0]:,} -> {count(totals[1], 'entry')}, {format_bytes(sizes[0])} -> {format_bytes(sizes[1])}",
    )
    for words in coverage.words:
        _line(output, "", words)
    kinds = [[kind, f"{one:,}", f"{other:,}"] for kind, (one, other) in coverage.entries.items()]
    kernels = [[f"  in {path}", f"{one:,}", f"{other:,}"] for path, (one, other) in coverage.triton_dirs.items()]
    rows = [["entries", "a", "b"], *kinds, *kernels]
    devices = [["graphs of", "forward", "backward", "inference", "kernels"]]
    for pair in coverage.devices:
        devices.append([pair.device or "unknown", *_coverage(pair.a, pair.b)])
    for shown, right in ((rows, (1, 2)), (devices, (1, 2, 3, 4))):
        if len(shown) > 1:
            for line in table(shown, right):
                output.line(f"  {line}")


def _coverage(a: Coverage, b: Coverage) -> list[str]:
    names = ("forward", "backward", "inference", "kernels")
    return [f"{getattr(a, name):,} -> {getattr(b, name):,}" for name in names]


# One kernel in full


def say_kernels(output: Output, result: DiffResult) -> None:
    """The kernels of a comparison, each in full, with both sources."""
    kernels = result.difference.kernels
    _say_sides(output, result.difference)
    for pair in kernels.changed:
        output.line()
        _say_pair_in_full(output, pair)
    for letter, only in (("a", kernels.only_a), ("b", kernels.only_b)):
        for kernel in only:
            output.line()
            output.line(f"{_kernel(kernel)}: only in {letter}")
            _rows(output, _facts(kernel), [letter])
    if result.same:
        output.line()
        _some(output, "the same", list(result.same))


def _say_pair_in_full(output: Output, pair: KernelPair) -> None:
    effect = f": {pair.effect}" if pair.effect else ""
    output.line(f"{_kernel(pair.b)}{effect}   (matched by {pair.matched})")
    for change in pair.changes:
        if change.words:
            _wrap(output, f"{change.name}: {change.words}", "  ", "    ")
    one, other = _facts(pair.a), _facts(pair.b)
    alike = _fields_alike(pair.a.winner, pair.b.winner)
    if len(alike) > _ROWS:  # a template has dozens
        one, other = ({name: value for name, value in side.items() if name not in alike} for side in (one, other))
    _rows(output, {name: (*one.get(name, ("",)), *other.get(name, ("",))) for name in {**one, **other}}, ["a", "b"])
    if len(alike) > _ROWS:
        output.line(f"  {len(alike)} fields of the choice are the same")
    if pair.source:
        output.line()
        for line in pair.source:
            output.line(line, {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], ""))
    else:
        output.line("  source          the same" if pair.b.source else "  source          not known")


def _rows(output: Output, facts: dict[str, tuple[str, ...]], heading: Sequence[str]) -> None:
    rows = [["", *heading], *([name, *values] for name, values in facts.items())]
    for line in table(rows):
        output.line(f"  {line}")


def _facts(kernel: Kernel) -> dict[str, tuple[str, ...]]:
    """Name -> what there is to say, in a row of one column."""
    facts = {"name": kernel.name, "type": kernel.type, "module": kernel.module[:12], **_winner(kernel.winner)}
    facts["compiled"] = count(kernel.compiled, "binary") if kernel.compiled else ""
    if kernel.vector_bits is not None:
        facts["vectors"] = f"{kernel.vector_bits} bits" if kernel.vector_bits else "none: scalar code"
    facts["flags"] = " ".join(kernel.flags)
    facts |= _binary(kernel.binary) if kernel.binary else {}
    return {name: (value,) for name, value in facts.items() if value}


def _fields_alike(a: Winner, b: Winner) -> set[str]:
    one, other = (a.config or {}), (b.config or {})
    return {f"{_FIELD}{key}" for key in one if key in other and one[key] == other[key]}


def _winner(winner: Winner) -> dict[str, str]:
    found = {"choice": winner.how or "none recorded"}
    found |= {f"{_FIELD}{key}": f"{value}" for key, value in (winner.config or {}).items()}
    if winner.milliseconds is not None:
        found["measured"] = f"{winner.milliseconds:.4f} ms a call"
    if winner.tuning_seconds is not None:
        found["tuning took"] = format_duration(winner.tuning_seconds)
    return found


def _binary(binary: Binary) -> dict[str, str]:
    numbers = {
        "num_warps": binary.num_warps,
        "num_stages": binary.num_stages,
        "registers": binary.registers,
        "local memory": _bytes(binary.local_bytes),
        "shared, static": _bytes(binary.static_shared),
        "shared, dynamic": _bytes(binary.dynamic_shared),
        "code": _bytes(binary.code_bytes),
        "PTX": _bytes(binary.ptx_bytes or None),
        "cubin": _bytes(binary.cubin_bytes or None),
    }
    facts = {name: "" if number is None else f"{number}" for name, number in numbers.items()}
    mix = {f"  {name}": f"{number:,}" for name, number in (binary.mix or {}).items()}
    return {**facts, **({"instructions": f"{sum((binary.mix or {}).values()):,} in PTX"} if mix else {}), **mix}


def _bytes(number: int | None) -> str | None:
    return None if number is None else f"{number:,} B"


# Lines


def _some(output: Output, label: str, lines: Sequence[str], most: int = _ROWS) -> None:
    for number, text in enumerate(lines[:most]):
        _line(output, label if not number else "", text)
    if len(lines) > most:
        _line(output, "", f"and {len(lines) - most:,} more (all of them with --json)")


def _line(output: Output, label: str, text: str) -> None:
    _wrap(output, text, f"{label:<{_LABEL}} ")


def _wrap(output: Output, text: str, first: str, others: str | None = None) -> None:
    for line in wrapped(text, first, " " * (_LABEL + 1) if others is None else others):
        output.line(line)


_SAY = {
    "work": _say_work,
    "environment": _say_environment,
    "graphs": _say_graphs,
    "kernels": _say_kernels,
    "products": _say_products,
    "coverage": _say_coverage,
}
