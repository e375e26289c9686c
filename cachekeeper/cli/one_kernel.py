"""Kernels in full, for `cachekeeper diff --kernel`: every number of both sides, no name cut, and the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..units import count, format_duration, spaced
from .output import Output, table, wrapped

if TYPE_CHECKING:
    from ..diffing.models import KernelPair
    from ..inventory.models import Binary, Kernel, Winner
    from ..verbs.diff import DiffResult

_FIELD = "  "
_FIELDS = 8
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def called(kernel: Kernel, name: str = "") -> str:
    """As "softcap_0 (user_autotune) on cuda:0". `name`: to be said instead of its own."""
    kind, where = f"({kernel.type})" if kernel.type else "", f"on {kernel.device}" if kernel.device else ""
    return spaced(name or kernel.name, kind, where)


def say_kernels(output: Output, result: DiffResult) -> None:
    """The kernels of a comparison, each in full: those that differ, those of one side, and those that are the same.

    Where it is one kernel alone, its source is shown too where both have the same; of more it would be too long.
    """
    kernels = result.difference.kernels
    alone = len(kernels.changed) + len(kernels.only_a) + len(kernels.only_b) + len(result.same) == 1
    for pair in kernels.changed:
        output.line()
        _say_pair(output, pair, alone)
    for letter, only in (("a", kernels.only_a), ("b", kernels.only_b)):
        for kernel in only:
            output.line()
            output.line(f"{called(kernel)}: only in {letter}")
            _rows(output, _facts(kernel), [letter])
            _say_source(output, kernel, alone)
    for pair in result.same:
        output.line()
        _say_same(output, pair, alone, pair.b.name in kernels.unrecorded)


def _say_same(output: Output, pair: KernelPair, alone: bool, unrecorded: bool) -> None:
    words = "nothing differs that is recorded, but no choice of autotuning is" if unrecorded else "the same"
    output.line(f"{called(pair.b)}: {words}   (matched by {pair.matched})")
    one, other = _facts(pair.a), _facts(pair.b)
    if one == other:
        _rows(output, other, ["a and b"])
    else:
        _rows(output, _both(one, other), ["a", "b"])
    _say_source(output, pair.b, alone)


def _say_source(output: Output, kernel: Kernel, whole: bool) -> None:
    if kernel.source and whole:
        output.line()
        for line in kernel.source.splitlines():
            output.line(line, whole=True)
    elif kernel.source:
        output.line(f"  source: {count(len(kernel.source.splitlines()), 'line')}, shown for one kernel alone")


def _both(one: dict[str, tuple[str, ...]], other: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: (*one.get(name, ("",)), *other.get(name, ("",))) for name in {**one, **other}}


def _say_pair(output: Output, pair: KernelPair, alone: bool) -> None:
    effect = f": {pair.effect}" if pair.effect else ""
    output.line(f"{called(pair.b)}{effect}   (matched by {pair.matched})")
    for change in pair.changes:
        if change.words:
            for line in wrapped(f"{change.name}: {change.words}", "  ", "    "):
                output.line(line)
    one, other = _facts(pair.a), _facts(pair.b)
    alike = _fields_alike(pair.a.winner, pair.b.winner)
    if len(alike) > _FIELDS:  # a template has dozens
        one, other = ({name: value for name, value in side.items() if name not in alike} for side in (one, other))
    _rows(output, _both(one, other), ["a", "b"])
    if len(alike) > _FIELDS:
        output.line(f"  {len(alike)} fields of the choice are the same")
    if pair.source:
        output.line()
        for line in pair.source:
            output.line(line, _COLOURS.get(line[:1], ""), whole=True)
    else:
        output.line("  source          the same" if pair.b.source else "  source          not known")
        if alone:
            _say_source(output, pair.b, alone)


def _rows(output: Output, facts: dict[str, tuple[str, ...]], heading: Sequence[str]) -> None:
    rows = [["", *heading], *([name, *values] for name, values in facts.items())]
    for line in table(rows):
        output.line(f"  {line}", whole=True)


def _facts(kernel: Kernel) -> dict[str, tuple[str, ...]]:
    """Name -> what there is to say, in a row of one column."""
    facts = {"name": kernel.name, "type": kernel.type, "module": kernel.module[:12], **_winner(kernel.winner)}
    facts["compiled"] = count(kernel.compiled, "binary") if kernel.compiled else ""
    if kernel.vector_bits is not None:
        facts["vectors"] = f"{kernel.vector_bits} bits" if kernel.vector_bits else "none: scalar code"
    facts["flags"] = " ".join(kernel.flags)
    facts["built"] = kernel.built if kernel.built != "there" else ""
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
        "hash": binary.hash[:12],
        "code's hash": binary.code or None,
    }
    facts = {name: "" if number is None else f"{number}" for name, number in numbers.items()}
    mix = {f"  {name}": f"{number:,}" for name, number in (binary.mix or {}).items()}
    return {**facts, **({"instructions": f"{sum((binary.mix or {}).values()):,} in PTX"} if mix else {}), **mix}


def _bytes(number: int | None) -> str | None:
    return None if number is None else f"{number:,} B"
