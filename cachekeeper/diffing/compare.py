"""Two caches, compared as a whole."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import fields

from ..inventory.models import Inventory
from ..units import count
from .coverage import coverage
from .environment import environment
from .findings import Findings
from .graphs import graphs
from .kernels import kernels
from .metrics import metrics
from .models import Change, Difference, Environment, Parts, Side
from .products import products
from .verdict import alike, judge
from .work import work


def compare(a: Side, b: Side, of_a: Inventory, of_b: Inventory) -> Difference:
    """What differs between two caches, whether it matters, and whether they do the same work.

    Args:
        a, b: what is known of them besides their files.
        of_a, of_b: what they hold.
    """
    paired, config = graphs(of_a.graphs, of_b.graphs)
    found = Findings(
        a,
        b,
        work(a, b, paired),
        metrics(a.metrics, b.metrics),
        environment(a.fingerprint, b.fingerprint, config, _has_cpu_code(of_a) or _has_cpu_code(of_b)),
        paired,
        kernels(of_a.kernels, of_b.kernels, paired),
        products(of_a.products, of_b.products),
        coverage(of_a, of_b),
        of_a.unread + of_b.unread,
        min(_looked_at(of_a), _looked_at(of_b), key=lambda pair: pair[0] - pair[1]),
    )
    apart = _differs(found)
    verdict, suspects = judge(found) if apart else (alike(found), ())
    return Difference(
        **{part.name: getattr(found, part.name) for part in fields(Parts)},
        verdict=verdict,
        suspects=suspects,
        differs=apart or bool(found.unread),
        notes=_notes(a, b, of_a, of_b, found),
    )


def _looked_at(inventory: Inventory) -> tuple[int, int]:
    """Of the kernels those that were looked into, or need not be, and all."""
    return sum(kernel.read for kernel in inventory.kernels), len(inventory.kernels)


def _has_cpu_code(inventory: Inventory) -> bool:
    return any(kernel.type == "cpp" for kernel in inventory.kernels)


def _differs(found: Findings) -> bool:
    parts: tuple[Sequence[object], ...] = (
        *(found.graphs.pairs, found.graphs.only_a, found.graphs.only_b),
        *(found.kernels.changed, found.kernels.only_a, found.kernels.only_b),
        *(found.products.changed, found.products.only_a, found.products.only_b),
        *(found.work.differences, found.coverage.words, _of_environment(found.environment)),
    )
    return (
        any(parts)
        or bool(found.kernels.rekeyed)
        or set(found.a.fallbacks) != set(found.b.fallbacks)
        or any(one != other for one, other in found.coverage.entries.values())
        or any(metric.verdict != "same" for metric in found.metrics)
    )


def _of_environment(environment: Environment) -> tuple[Change, ...]:
    return (*environment.facts, *environment.variables, *environment.packages, *environment.config)


def _notes(a: Side, b: Side, of_a: Inventory, of_b: Inventory, found: Findings) -> tuple[str, ...]:
    both = [note for note in of_a.notes if note in of_b.notes]
    notes = [*both]
    for side, inventory in ((a, of_a), (b, of_b)):
        notes += [f"{side.label}: {note}" for note in inventory.notes if note not in both]
    hidden = sum(
        not pair.source and any(change.name == "source" for change in pair.changes) for pair in found.kernels.changed
    )
    if hidden:
        notes.append(f"sources of {count(hidden, 'more kernel')} differ, too: name one (--kernel) to see where")
    for side, inventory in ((a, of_a), (b, of_b)):
        if inventory.unread:
            notes.append(f"{side.label}: {count(inventory.unread, 'file')} could not be read: {_verify(side)}")
    return tuple(dict.fromkeys(notes))


def _verify(side: Side) -> str:
    if side.id:
        return f"`cachekeeper verify {shlex.quote(side.label)}` says whether the store is damaged"
    return f"`cachekeeper verify NAME --live {shlex.quote(side.label)}` compares it with a snapshot"
