"""What of kernels may make the second of two caches slower, or faster: a rule a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..explaining.advice import advise
from ..units import few, listed
from . import resources
from .clues import FASTER, LIKELY, POSSIBLE, SLOWER, Clue, said, show
from .findings import Findings
from .models import Change, KernelPair
from .settings import PRECISION

_SHOWN = 6
_WIDER = (
    "three things narrow them, and none is in a key: ATEN_CPU_CAPABILITY in the job's environment, "
    "torch._inductor.config.cpp.simdlen, and a machine without the instruction set of the first (lscpu)"
)
_SPILLED_MUCH = 64  # bytes a thread


def _kernel_rule(
    found: Findings,
    name: str,
    words: dict[str, str],
    brief: dict[str, str],
    likelihood: Callable[[KernelPair], str],
    to_do: str = "",
) -> Iterator[Clue]:
    """One clue for all kernels that one change makes slower, and one for those that it makes faster.

    Args:
        to_do: what to do where it makes them slower.
    """
    for effect in (SLOWER, FASTER):
        pairs = found.changed(name, effect)
        if not pairs:
            continue
        names = _kernel_names(pairs)
        best = LIKELY if any(likelihood(pair) == LIKELY for pair in pairs) else POSSIBLE
        shown = [(pair, change) for pair in pairs[:_SHOWN] for change in pair.changes if change.name == name]
        lines = [said(change, f"{pair.b.name}: {name}") for pair, change in shown]
        lines += [f"and {len(pairs) - _SHOWN:,} more"] * (len(pairs) > _SHOWN)
        cause = tuple(_settings_with(found, name, effect))
        evidence = (*lines, *_with_it(pairs[0], name), *cause)
        why = f" ({cause[0]})" if cause else ""
        advice = show(found, pairs[0])
        if cause and effect == SLOWER:
            advice = f"{advise(('matmul',), ())}; {advice}"
        if to_do and effect == SLOWER:
            advice = f"{to_do}; {advice}"
        brief_words = f"{brief[effect]} {names}{why}"
        yield Clue(best, effect, f"{names} {words[effect]}{why}", brief_words, evidence, advice, names)


def _kernel_names(pairs: Sequence[KernelPair]) -> str:
    names = list(dict.fromkeys(pair.b.name for pair in pairs))
    return listed(names, 1)


def _with_it(pair: KernelPair, name: str) -> Iterator[str]:
    """How the kernel was launched, where that has changed, too."""
    for change in pair.changes:
        if change.name in resources.LAUNCH and change.name != name:
            yield said(change, f"{pair.b.name}: {change.name}")


def _settings_with(found: Findings, name: str, effect: str) -> Iterator[str]:
    if name == resources.TENSOR:
        for change in found.environment.config:
            if change.name == PRECISION and change.effect == effect:
                yield f"{change.name} {change.a} -> {change.b}"


def tensor(found: Findings) -> Iterator[Clue]:
    """Products without tensor cores are many times slower."""
    yield from _kernel_rule(
        found,
        resources.TENSOR,
        {SLOWER: "has no tensor-core instructions any more", FASTER: "has tensor-core instructions now"},
        {SLOWER: "tensor-core instructions gone from", FASTER: "tensor-core instructions in"},
        _launched,
    )


def _launched(pair: KernelPair) -> str:
    return LIKELY if pair.b.graphs or pair.a.graphs else POSSIBLE


def spills(found: Findings) -> Iterator[Clue]:
    """Registers that are spilled go to memory and back."""

    def likelihood(pair: KernelPair) -> str:
        bytes_ = [side.binary.local_bytes or 0 for side in (pair.a, pair.b) if side.binary]
        return _launched(pair) if max(bytes_) - min(bytes_) >= _SPILLED_MUCH else POSSIBLE

    yield from _kernel_rule(
        found,
        resources.SPILLS,
        {SLOWER: "spills more registers to memory", FASTER: "spills fewer registers to memory"},
        {SLOWER: "spills in", FASTER: "fewer spills in"},
        likelihood,
    )


def vectors(found: Findings) -> Iterator[Clue]:
    """C++ with narrower vectors."""
    yield from _kernel_rule(
        found,
        resources.VECTORS,
        {SLOWER: "uses narrower vectors", FASTER: "uses wider vectors"},
        {SLOWER: "narrower vectors in", FASTER: "wider vectors in"},
        lambda pair: LIKELY,
        _WIDER,
    )


def occupied(found: Findings) -> Iterator[Clue]:
    """Fewer warps are resident at once."""
    for name in (resources.REGISTERS_NAME, resources.DYNAMIC, resources.STATIC):
        yield from _kernel_rule(
            found,
            name,
            {
                SLOWER: f"uses more {name}: fewer warps are resident",
                FASTER: f"uses less of {name}: more warps are resident",
            },
            {SLOWER: f"more {name} in", FASTER: f"less of {name} in"},
            lambda pair: POSSIBLE,
        )


def timed_kernels(found: Findings) -> Iterator[Clue]:
    """What autotuning measured for the winners."""
    yield from _kernel_rule(
        found,
        resources.TIME,
        {SLOWER: "was measured slower by autotuning", FASTER: "was measured faster by autotuning"},
        {SLOWER: "slower winners of autotuning:", FASTER: "faster winners of autotuning:"},
        _launched,
    )


def launches(found: Findings) -> Iterator[Clue]:
    """Other choices, of which nobody knows whether they are better."""
    pairs = found.heaviest(
        pair for pair in found.kernels.changed if pair.effect == "" and _chosen(pair) and not _is_timed(pair, found)
    )
    if pairs:
        lines = [f"{pair.b.name}: {', '.join(f'{c.name} {c.a} -> {c.b}' for c in _chosen(pair))}" for pair in pairs]
        words = f"{_kernel_names(pairs)}: other launch parameters, for which no timing is recorded"
        brief = f"other launch parameters of {_kernel_names(pairs)}"
        yield Clue(POSSIBLE, "", words, brief, few(lines), show(found, pairs[0]))


def _is_timed(pair: KernelPair, found: Findings) -> bool:
    """Of templates the timings are those of products."""
    of_products = pair.b.type == "template" and bool(found.products.same or found.products.changed)
    return of_products or any(change.name == resources.TIME for change in pair.changes)


_NOT_CHOSEN = frozenset(
    (
        *("source", "instructions", "target", "tools", "machine code", "PTX", "cubin", "type", "device", "size hints"),
        *(resources.SPILLS, resources.TENSOR, resources.REGISTERS_NAME, resources.DYNAMIC, resources.STATIC),
        *(resources.BINARY, resources.LIBRARY),
        *("flags", "choice", "coordinate descent", resources.VECTORS, resources.TIME),
    )
)


def _chosen(pair: KernelPair) -> list[Change]:
    return [change for change in pair.changes if change.name not in _NOT_CHOSEN]


def rewritten(found: Findings) -> Iterator[Clue]:
    """Other sources, or other flags."""
    pairs = found.heaviest(pair for pair in found.kernels.changed if _is_rewritten(pair))
    if pairs:
        lines = [f"{pair.b.name}: matched by {pair.matched}" for pair in pairs]
        words = f"{_kernel_names(pairs)}: the source or the compiler's flags are others"
        yield Clue(POSSIBLE, "", words, f"another source of {_kernel_names(pairs)}", few(lines), show(found, pairs[0]))


def _is_rewritten(pair: KernelPair) -> bool:
    """Not where the effect is known, nor where a template was only filled in with other numbers."""
    names = {change.name for change in pair.changes}
    filled_in = pair.b.type == "template" and bool(_chosen(pair))
    return pair.effect == "" and not filled_in and bool(names & {"source", "flags"})
