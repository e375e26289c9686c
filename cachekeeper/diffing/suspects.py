"""What may make the second of two caches slower, or faster: a rule a function, the most telling first."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from ..explaining.advice import advise, advise_fallback
from ..inventory.models import Graph, Product
from ..units import count, few, listed
from .clues import FASTER, LIKELY, POSSIBLE, SLOWER, START, UNLIKELY, Clue, Rule, restore, said
from .coverage import joined, lost
from .environment import is_idle
from .findings import Findings
from .kernel_suspects import launches, occupied, rewritten, spills, tensor, timed_kernels, vectors
from .models import Change, GraphPair, ProductPair
from .others import is_little_shared, is_nothing_shared, others
from .products import TIME, WINNER, choice_costs
from .resources import in_ms, is_choice_lost, is_gone, is_other_code, of_times
from .settings import PRECISION

_SETTING = "set them alike, in the environment or with torch.compile(options=...), and warm again"
_AGAIN = "delete what is damaged, and warm again"
_LINE = re.compile(r":\d+\)")


# The run


def fallbacks(found: Findings) -> Iterator[Clue]:
    """What ran uncompiled on one side only; a line number moves when a file is edited."""
    one, other = ({_LINE.sub(")", line): line for line in side.fallbacks} for side in (found.a, found.b))
    silent = found.a.run is None or found.b.run is None
    for effect, names, lines in ((SLOWER, other.keys() - one.keys(), other), (FASTER, one.keys() - other.keys(), one)):
        told = [lines[name] for name in sorted(names)]
        if told:
            how = "ran uncompiled" if effect == SLOWER else "no longer ran uncompiled"
            what = told[0] if len(told) == 1 else count(len(told), "function")
            brief = f"{told[0].partition(': ')[0] if len(told) == 1 else what} {how}"
            first = told[0]
            advice = f"{advise_fallback(first)}; `cachekeeper explain` says more" if effect == SLOWER else ""
            yield Clue(POSSIBLE if silent else LIKELY, effect, f"{what} {how}", brief, few(told), advice)


def lost_graphs(found: Findings) -> Iterator[Clue]:
    """Graphs, backwards or devices that are gone are compiled again."""
    gone = lost(found.coverage.devices)
    if not found.graphs.only_a or not (gone or is_nothing_shared(found.graphs)):
        return
    lines = list(map(graph_name, found.graphs.only_a))
    likelihood = LIKELY if found.start == SLOWER else POSSIBLE
    evidence = (*found.coverage.words, *few([f"only in {found.a.label}: {line}" for line in lines], 4))
    if gone:
        what = joined(gone)
        words = f"{what[:1].upper()}{what[1:]} would be compiled again: gone from the cache"
        brief = f"{what} gone from the cache"
    else:
        all_ = f"all {count(len(lines), 'graph')}" if len(lines) > 1 else "the graph"
        words = f"{all_[:1].upper()}{all_[1:]} of {found.a.label} would be compiled again: none is in {found.b.label}"
        brief = f"{all_} of {found.a.label} gone from the cache"
    yield Clue(likelihood, START, words, brief, evidence, restore(found, "brings them back; or warm them again"))


def other_graphs(found: Findings) -> Iterator[Clue]:
    """Nothing, or little, is the same: how the graphs that are the nearest differ."""
    if not is_little_shared(found.graphs):
        return
    pairs = others(found.graphs)
    if not pairs:
        return
    often = Counter(text for pair in pairs for text in dict.fromkeys(pair.general))
    generals = sorted(often, key=lambda text: -often[text])
    what = listed(generals, 1)
    sure = is_nothing_shared(found.graphs)
    words = f"{'All' if sure else 'Most'} graphs are others: {what}"
    lines = [f"{graph_name(pair.b)}: {'; '.join(pair.words)}" for pair in pairs]
    advice = "compare with a snapshot of a job that compiled the same graphs, or undo what changed them"
    yield Clue(LIKELY if sure else POSSIBLE, "", words, f"other graphs: {what}", few(lines), advice)


def rebuilt(found: Findings) -> Iterator[Clue]:
    """What was compiled is gone, or is under a key that nothing asks for."""
    gone = [pair for pair in found.kernels.changed if any(map(is_gone, pair.changes))]
    if gone:
        what = count(len(gone), "kernel")
        words = f"What was compiled is gone for {what}: built again at the next start"
        lines = few([f"{pair.b.name}: {said(change)}" for pair in gone for change in pair.changes if is_gone(change)])
        yield Clue(POSSIBLE, START, words, f"no binary of {what}", lines, restore(found, "brings them back"))
    if found.kernels.rekeyed and not found.environment.breaking:
        what = count(found.kernels.rekeyed, "kernel")
        words = f"The same code of {what} is under another key of Triton's cache, so that Triton builds it again"
        yield Clue(
            POSSIBLE, START, words, f"another key of Triton's for {what}", (), restore(found, "brings the first")
        )


def damaged_code(found: Findings) -> Iterator[Clue]:
    """Other code under the same key: of one side, or of both, nobody knows what it does."""
    pairs = [pair for pair in found.kernels.changed if any(map(is_other_code, pair.changes))]
    if pairs:
        what = listed([pair.b.name for pair in pairs], 1)
        shown = [(pair, change) for pair in pairs for change in pair.changes if is_other_code(change)]
        lines = few([f"{pair.b.name}: {said(change)}" for pair, change in shown])
        words = f"The machine code of {what} is not the same under the same key"
        yield Clue(POSSIBLE, "", words, f"other machine code of {what}", lines, _verify(found))


def _verify(found: Findings) -> str:
    """How to see which of the two is damaged."""
    live = [side for side in (found.a, found.b) if not side.id]
    kept = [f"cachekeeper verify {shlex.quote(side.label)}" for side in (found.a, found.b) if side.id]
    if live and kept:
        command = f"`{kept[0]} --live {shlex.quote(live[0].cache_dir or live[0].label)}` says which files are damaged"
    else:
        command = f"{' and '.join(f'`{one}`' for one in kept)} say which is damaged" if kept else ""
    return "; ".join(filter(None, (command, restore(found, "has the first again")))) or _AGAIN


def untuned(found: Findings) -> Iterator[Clue]:
    """Kernels whose choice is not recorded any more are tuned again."""
    pairs = [pair for pair in found.kernels.changed if any(map(is_choice_lost, pair.changes))]
    if pairs:
        names = [pair.b.name for pair in pairs]
        words = f"The choice of autotuning is not recorded any more for {count(len(pairs), 'kernel')}: tuned again"
        advice = restore(found, "brings the choices back")
        yield Clue(POSSIBLE, START, words, f"no recorded choice for {count(len(pairs), 'kernel')}", few(names), advice)


def divided(found: Findings) -> Iterator[Clue]:
    """The same graph, made of more kernels and calls, or of fewer: less is fused, or the library is called."""
    for effect in (SLOWER, FASTER):
        pairs = [pair for pair in found.graphs.pairs if _divided(pair) == effect]
        if pairs:
            how = "More" if effect == SLOWER else "Fewer"
            what = listed([graph_name(pair.b) for pair in pairs], 1)
            words = f"{how} kernels and calls are launched by {what}"
            lines = few(list(map(_launches_line, pairs)))
            yield Clue(POSSIBLE, effect, words, f"{how.lower()} launches by {what}", lines)


def _divided(pair: GraphPair) -> str:
    one, other = (len(graph.kernels) + sum(graph.calls.values()) for graph in (pair.a, pair.b))
    return "" if one == other or not (one and other) else SLOWER if other > one else FASTER


def _launches_line(pair: GraphPair) -> str:
    told = []
    for graph in (pair.a, pair.b):
        calls = [f"{number} {name}" for name, number in sorted(graph.calls.items())]
        told.append(", ".join([count(len(graph.kernels), "kernel"), *calls]))
    return f"{graph_name(pair.b)}: {' -> '.join(told)}"


def graph_name(graph: Graph) -> str:
    """As "the backward graph of forward (model.py:12) on cuda:0"."""
    words = (f"the {graph.direction} graph".replace("  ", " "), graph.function and f"of {graph.function}")
    return " ".join(filter(None, (*words, graph.device and f"on {graph.device}")))


# Products


def library(found: Findings) -> Iterator[Clue]:
    """Products that a kernel of Triton's now does, and not the library; or the other way."""
    for to_library in (False, True):
        pairs = [pair for pair in found.graphs.pairs if _moved(pair, to_library)]
        if pairs:
            number = sum(abs(_library_calls(pair.a) - _library_calls(pair.b)) for pair in pairs)
            now = "the library" if to_library else "Triton's templates"
            before = "Triton's templates" if to_library else "the library"
            words = f"{count(number, 'product')} run in {now}, no longer in {before}"
            lines = [*map(_launches_line, pairs), *map(_best_against_library, found.products.only_b)]
            advice = "" if to_library else "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS=ATEN keeps to the library"
            yield Clue(POSSIBLE, "", words, f"{count(number, 'product')} in {now}", few(lines), advice)


def _library_calls(graph: Graph) -> int:
    return sum(number for name, number in graph.calls.items() if name.startswith("extern_kernels."))


def _moved(pair: GraphPair, to_library: bool) -> bool:
    one, other = _library_calls(pair.a), _library_calls(pair.b)
    return one != other and (other > one) == to_library and len(pair.a.kernels) != len(pair.b.kernels)


def _best_against_library(product: Product) -> str:
    own = next((option for option in product.options if option.name == product.operation), None)
    told = [
        f"{option.name} {in_ms(option.milliseconds)}"
        for option in (product.best, own)
        if option and option.milliseconds
    ]
    return f"{product.operation} {product.inputs}: measured {', the library '.join(told)}"


def timed_products(found: Findings) -> Iterator[Clue]:
    """What max-autotune chose and measured."""
    for effect in (SLOWER, FASTER):
        pairs = [pair for pair in found.products.changed if any(change.effect == effect for change in pair.changes)]
        if pairs:
            yield _of_products(found, pairs, effect)
    noise = [pair for pair in found.products.changed if not any(change.effect for change in pair.changes)]
    if noise:
        words = f"max-autotune chose otherwise for {count(len(noise), 'product')}, within what measurements differ by"
        yield Clue(UNLIKELY, "", words, "other winners of max-autotune", few(_product_lines(noise)))


def _of_products(found: Findings, pairs: Sequence[ProductPair], effect: str) -> Clue:
    chosen = any(change.name == WINNER and change.effect == effect for pair in pairs for change in pair.changes)
    costs = [costs for pair in found.products.changed if (costs := choice_costs(pair.a, pair.b))]
    before, after = (sum(side) for side in zip(*costs, strict=True)) if costs else (0.0, 0.0)
    what = listed([f"{pair.b.operation} {pair.b.inputs}" for pair in pairs], 1)
    words = f"max-autotune {'chose another way that is' if chosen else 'measured the same way'} {effect} for {what}"
    sure = chosen and (not costs or of_times(before, after) == effect)
    advice = restore(found, "keeps the choices that were made before") if effect == SLOWER else ""
    brief = f"a {effect} {pairs[0].b.operation} by max-autotune's choice"
    return Clue(LIKELY if sure else POSSIBLE, effect, words, brief, few(_product_lines(pairs)), advice)


def _product_lines(pairs: Sequence[ProductPair]) -> list[str]:
    lines = []
    for pair in pairs:
        changes = [change for change in pair.changes if change.name in (WINNER, TIME)]
        lines.append(f"{pair.b.operation} {pair.b.inputs}: {'; '.join(map(said, changes))}")
    return lines


# The environment


_VERSIONS = ("torch", "torch_source", "triton", "triton_source", "cuda", "hip", "ptxas", "libdevice")


def versions(found: Findings) -> Iterator[Clue]:
    """Another GPU, torch or Triton makes other code, and runs it otherwise."""
    facts = found.environment.facts
    for names, what, sure in ((("gpu",), "The GPU is another one", True), (_VERSIONS, "", False)):
        some = [change for change in facts if change.name in names]
        if some:
            brief = f"{some[0].name.replace('_', ' ').replace('gpu', 'GPU')} {some[0].a} -> {some[0].b}"
            breaking = any(change.name in found.environment.breaking for change in some)
            words = f"{what or 'The software is another one'}: {brief}" + (
                ", which makes every key another one" if breaking else ""
            )
            yield Clue(LIKELY if sure else POSSIBLE, "", words, brief, few(list(map(said, some))))


def settings(found: Findings) -> Iterator[Clue]:
    """Settings of Inductor that differ in keys."""
    config = found.environment.config
    for effect in (SLOWER, FASTER, ""):
        some = [change for change in config if change.effect == effect]
        if some:
            yield _of_settings(found, some, effect)


def _of_settings(found: Findings, some: Sequence[Change], effect: str) -> Clue:
    what = listed([f"{change.name} {change.a} -> {change.b}" for change in some], 1)
    words, lines = f"Compiled with other settings: {what}", few(list(map(said, some)))
    advice = advise(("matmul",), ()) if some[0].name == PRECISION else _SETTING
    if {effect, found.direction} == {
        SLOWER,
        FASTER,
    }:  # that is not what was measured, and still it is not the same code
        return Clue(POSSIBLE, "", f"{words}, which is meant to be {effect}", what, lines, advice)
    return Clue(LIKELY if effect else POSSIBLE, effect, words, what, lines, "" if effect == FASTER else advice)


def surroundings(found: Findings) -> Iterator[Clue]:
    """Driver, compiler, variables and packages."""
    facts = [change for change in found.environment.facts if change.name not in (*_VERSIONS, "gpu")]
    variables = [change for change in found.environment.variables if not is_idle(change)]
    for some, what, likelihood in (
        (variables, "Environment variables differ", POSSIBLE),
        (facts, "The machine's software differs", UNLIKELY),
        (found.environment.packages, "Other packages are installed", UNLIKELY),
    ):
        if some:
            names = ", ".join(few([change.name for change in some], 3))
            yield Clue(likelihood, "", f"{what}: {names}", names, few(list(map(said, some))))


RULES: Sequence[Rule] = (
    fallbacks,
    lost_graphs,
    rebuilt,
    untuned,
    damaged_code,
    tensor,
    spills,
    versions,
    other_graphs,
    timed_kernels,
    timed_products,
    library,
    vectors,
    settings,
    occupied,
    divided,
    launches,
    rewritten,
    surroundings,
)
