"""Of two keys, what the graphs do: operations that one has and the other has not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from ...units import listed
from .components import Component
from .words import Change, cut

_OPERATIONS_DIFFER = "the graph's operations differ"
# Of changes of these kinds it follows that constants, sizes and devices within the graph are others, too.
_WITHIN = frozenset(("shape", "dynamic", "device", "current device", "dtype", "stride", "input"))
_STATEMENT = re.compile(r"\s*(\w+)(?: : [^=]+)? = (.+)", re.DOTALL)
_CALL = re.compile(r"([A-Za-z_][\w.]*)\(")
_BINARY = re.compile(r"[\w.]+ (@|\+|-|\*|/|//|%|\*\*|<=?|>=?|==|!=|&|\||\^|<<|>>) [\w.]+")
_CUT_BY_TORCH = 1000  # torch cuts some values, and we cut the rest; what is past that cannot be compared


def of_operations(old: Mapping[str, Component], new: Mapping[str, Component], kinds: set[str]) -> Change | None:
    """How the operations of two graphs differ; None where it follows from other changes."""
    if kinds & {"gradients", "backward"}:
        return None  # what is kept for a backward, or not
    codes = [side["gm"].value if "gm" in side else "" for side in (old, new)]
    one, other = map(operations, codes)
    past = ""
    if any(len(code) >= _CUT_BY_TORCH for code in codes):
        shown = min(len(one), len(other)) - 1  # the last may be cut in two
        one, other = one[:shown], other[:shown]
        past = f" past the first {shown}, which are all that torch shows"
    before, after = (Counter(name for name, _ in side) for side in (one, other))
    if told := more_and_less(before, after):
        return told
    if kinds & _WITHIN:
        return None
    said = next((f": {a} -> {b}" for (_, a), (_, b) in zip(one, other, strict=False) if a != b), "")
    if kinds and not said:
        return None
    return Change("operations", _OPERATIONS_DIFFER + (said or past), _OPERATIONS_DIFFER)


def more_and_less(before: Counter[str], after: Counter[str]) -> Change | None:
    """The operations that two graphs have not as often; None where there are none such, or a side has none at all.

    Args:
        before, after: name of an operation -> how often it is done.
    """
    sides = (("more", after - before), ("without", before - after))
    told = [f"{word} {_counted(counts)}" for word, counts in sides if counts and before and after]
    return Change("operations", f"{_OPERATIONS_DIFFER}: {'; '.join(told)}", _OPERATIONS_DIFFER) if told else None


def _counted(counts: Mapping[str, int]) -> str:
    return listed([name if number == 1 else f"{number} {name}" for name, number in counts.items()])


def operations(code: str) -> list[tuple[str, str]]:
    """The statements of a graph's code, each as the name of its operation and the whole, with variables numbered."""
    numbers: dict[str, str] = {}
    found = []
    body = code.partition("def forward")[2].partition("\n")[2]
    for statement in re.split(r"[;\n]", body):
        match = _STATEMENT.match(statement)
        if not match or match[2].endswith("= None") or match[2] == "None":
            continue
        numbers.setdefault(match[1], f"v{len(numbers)}")
        whole = re.sub(r"\b[A-Za-z_]\w*\b(?!\()", lambda word: numbers.get(word[0], word[0]), match[2])
        found.append((_operation(match[2]), cut(re.sub(r"torch\.ops\.(\w+)\.|\.default(?=\()", "", whole))))
    return found


def _operation(expression: str) -> str:
    """ "torch.ops.aten.mm.default(a, b)" -> "mm", "a.t()" -> "t", "a @ b" -> "@"."""
    if match := _CALL.match(expression):
        parts = match[1].split(".")
        return parts[3] if parts[:2] == ["torch", "ops"] and len(parts) > 3 else parts[-1]
    match = _BINARY.match(expression)
    return match[1] if match else "another"
