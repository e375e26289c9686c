"""Compare two snapshots, or a snapshot with a live cache, down to kernels."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from ..diffing.compare import compare
from ..diffing.kernels import unchanged
from ..diffing.models import Difference, KernelPair, Kernels
from ..diffing.opening import Opened, opened
from ..diffing.sources import source_diff
from ..environment import fingerprint
from ..errors import NotFound
from ..inventory.models import Inventory, Kernel
from ..inventory.reading import inventory
from ..inventory.tree import alike
from ..progress import Progress
from ..repository import is_name, open_repository
from ..stores import Store
from ..workers import in_child

# A process of its own pays from so many files on.
_LARGE = 5_000
_NEAR = 5


@dataclass(frozen=True)
class DiffResult:
    """Two caches, compared.

    Attributes:
        difference: all of it.
        same: of the kernels that were asked for, those in which nothing differs, each with its other side. One whose
            name `difference.kernels.unrecorded` has is not known to be the same: nothing says what was chosen.
    """

    difference: Difference
    same: tuple[KernelPair, ...] = ()

    @property
    def differs(self) -> bool:
        """True where anything is not the same; of the kernels alone, where these were asked for."""
        return self.difference.differs


def diff(
    a: str,
    b: str | None = None,
    *,
    store: str | os.PathLike[str] | Store | None = None,
    kernel: str = "",
    full: bool = False,
    fork: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> DiffResult:
    """Compare two caches.

    Args:
        a, b: ids, names, `name@{1}`, "latest", or live directories; a name alone: its snapshot before and its last.
        kernel: only kernels of that name, or with that in their name.
        full: read everything, however long it takes; else some of a very large cache is left out, and told.
        fork: read the second of two large caches in a forked process; for a program that has no other thread.

    Raises:
        NotFound: no such snapshot, directory or kernel; EmptyCache for a directory that is no cache.
        DamagedStore: a manifest is damaged.
        LocalDiskError: a directory cannot be read.
    """
    if b is None:
        a, b = _before(a), a
    repository = open_repository(store)
    here = cache(fingerprint)
    sides = [opened(repository, reference, here) for reference in (a, b)]
    one, other = sides
    skip = alike(one.tree, other.tree) if not kernel else frozenset()

    def read(side: Opened, told: Progress) -> Inventory:
        return inventory(side.tree, side.told, skip=skip, full=full, wanted=kernel, progress=told)

    if fork and _is_large(one) and _is_large(other) and repository.store.url.startswith("file:"):
        second = in_child(lambda: read(other, lambda stage, done, total: None))
        found = [read(one, progress), second()]
    else:
        found = [read(side, _one_of(progress, position)) for position, side in enumerate(sides)]
    result = DiffResult(compare(one.side, other.side, *found))
    return _of_kernels(result, kernel, *found) if kernel else result


def _is_large(side: Opened) -> bool:
    return len(side.tree.files) > _LARGE


def _before(reference: str) -> str:
    if is_name(reference):
        return f"{reference}@{{1}}"
    raise NotFound(
        f"{reference!r} is no name, so nothing is known that was before it",
        hint="give two: `cachekeeper diff A B`",
    )


def _one_of(progress: Progress, position: int) -> Progress:
    """The progress of one side as a half of the whole."""
    return lambda stage, done, total: progress(stage, done + position * total, 2 * total)


def _of_kernels(result: DiffResult, wanted: str, *inventories: Inventory) -> DiffResult:
    """Only the kernels that were asked for."""
    names = sorted({kernel.name for found in inventories for kernel in found.kernels})
    if not any(wanted in name for name in names):
        raise _no_kernel_error(wanted, names, result.difference)
    kernels = result.difference.kernels
    chosen = Kernels(
        changed=tuple(_with_source(pair) for pair in kernels.changed if _concerns(pair, wanted)),
        only_a=_named(kernels.only_a, wanted),
        only_b=_named(kernels.only_b, wanted),
        unrecorded=tuple(name for name in kernels.unrecorded if wanted in name),
    )
    one, other = (found.kernels for found in inventories)
    alike = unchanged(one, other, result.difference.graphs)
    same = tuple(
        sorted((pair for pair in alike if _concerns(pair, wanted)), key=lambda pair: (pair.b.name, pair.b.device))
    )
    chosen = replace(chosen, same=sum(pair.b.name not in chosen.unrecorded for pair in same))
    differs = bool(chosen.changed or chosen.only_a or chosen.only_b)
    return DiffResult(replace(result.difference, kernels=chosen, differs=differs), same)


def _concerns(pair: KernelPair, wanted: str) -> bool:
    return wanted in pair.a.name or wanted in pair.b.name


def _with_source(pair: KernelPair) -> KernelPair:
    """With the diff of its sources, which the comparison of very many leaves out."""
    return pair if pair.source else replace(pair, source=source_diff(pair.a, pair.b))


def _no_kernel_error(wanted: str, names: Sequence[str], found: Difference) -> NotFound:
    near = difflib.get_close_matches(wanted, names, _NEAR, 0.3) or names[:_NEAR]
    more = [f"and {len(names) - len(near):,} more"] if len(names) > len(near) else []
    both = f"{shlex.quote(found.a.label)} {shlex.quote(found.b.label)}"
    hint = f"`cachekeeper diff {both} --only kernels` names those that differ"
    if found.b.id:
        hint += f", `cachekeeper report {shlex.quote(found.b.label)} --json` all of one side"
    return NotFound(f"no kernel of either side has {wanted!r} in its name", facts=[*near, *more], hint=hint)


def _named(kernels: Iterable[Kernel], wanted: str) -> tuple[Kernel, ...]:
    return tuple(kernel for kernel in kernels if wanted in kernel.name)
