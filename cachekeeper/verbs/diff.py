"""Compare two snapshots, or a snapshot with a live cache, down to kernels."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..diffing.compare import compare
from ..diffing.models import Difference, Kernels, Side
from ..diffing.sides import side_of, side_of_directory
from ..environment import fingerprint
from ..errors import NotFound
from ..fitting import identified
from ..inventory.models import Inventory, Kernel
from ..inventory.reading import inventory
from ..inventory.tree import LiveTree, SnapshotTree, Tree, alike
from ..models import Fingerprint
from ..repository import Repository, is_name, open_repository
from ..stores import Store
from ..telemetry import Log

Progress = Callable[[str, int, int], None]
_NEAR = 5


@dataclass(frozen=True)
class DiffResult:
    """Two caches, compared.

    Attributes:
        difference: all of it.
        same: names of the kernels that were asked for and are the same on both sides.
    """

    difference: Difference
    same: tuple[str, ...] = ()

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
    progress: Progress = lambda stage, done, total: None,
) -> DiffResult:
    """Compare two caches.

    Args:
        a, b: ids, names, `name@{1}`, "latest", or live directories; a name alone: its snapshot before and its last.
        kernel: only kernels of that name, or with that in their name.
        full: read everything, however long it takes; else some of a very large cache is left out, and told.

    Raises:
        NotFound: no such snapshot, directory or kernel.
        DamagedStore: a manifest is damaged.
        LocalDiskError: a directory cannot be read.
    """
    if b is None:
        a, b = _before(a), a
    repository = open_repository(store)
    here = cache(fingerprint)
    sides = [_opened(repository, reference, here) for reference in (a, b)]
    skip = alike(*(tree for _, tree, _ in sides)) if not kernel else frozenset()
    found = []
    for position, (_, tree, told) in enumerate(sides):
        found.append(inventory(tree, told, skip=skip, full=full, progress=_one_of(progress, position)))
    (side_a, *_), (side_b, *_) = sides
    result = DiffResult(compare(side_a, side_b, *found))
    return _of_kernels(result, kernel, *found) if kernel else result


def _before(reference: str) -> str:
    if is_name(reference):
        return f"{reference}@{{1}}"
    raise NotFound(
        f"{reference!r} is no name, so nothing is known that was before it",
        hint="give two: `cachekeeper diff A B`",
    )


def _opened(repository: Repository, reference: str, here: Callable[[], Fingerprint]) -> tuple[Side, Tree, Log | None]:
    """What is known of one side, its files, and what a job told of its graphs."""
    directory = Path(os.path.expanduser(reference))
    if os.sep in reference and directory.is_dir() and not _is_known(repository, reference):
        return side_of_directory(reference, directory, here()), LiveTree(directory), None
    repository.require()
    snapshot = repository.manifest(identified(repository, reference, here))
    told = repository.telemetry(snapshot)
    return side_of(reference, snapshot, told), SnapshotTree(repository, snapshot), told


def _is_known(repository: Repository, reference: str) -> bool:
    """True for a name with a slash, which looks like a directory."""
    return is_name(reference) and repository.exists() and bool(repository.latest(reference))


def _one_of(progress: Progress, position: int) -> Progress:
    """The progress of one side as a half of the whole."""
    return lambda stage, done, total: progress(stage, done + position * total, 2 * total)


def _of_kernels(result: DiffResult, wanted: str, *inventories: Inventory) -> DiffResult:
    """Only the kernels that were asked for."""
    names = sorted({kernel.name for found in inventories for kernel in found.kernels})
    if not any(wanted in name for name in names):
        near = difflib.get_close_matches(wanted, names, _NEAR, 0.3) or names[:_NEAR]
        raise NotFound(
            f"no kernel of either side has {wanted!r} in its name",
            facts=near,
            hint="names are listed by `cachekeeper diff A B --only kernels`, and all of them by `cachekeeper report`",
        )
    kernels = result.difference.kernels
    chosen = Kernels(
        changed=tuple(pair for pair in kernels.changed if wanted in pair.a.name or wanted in pair.b.name),
        only_a=_named(kernels.only_a, wanted),
        only_b=_named(kernels.only_b, wanted),
        unrecorded=tuple(name for name in kernels.unrecorded if wanted in name),
    )
    told = {kernel.name for kernel in (*chosen.only_a, *chosen.only_b)}
    told |= {kernel.name for pair in chosen.changed for kernel in (pair.a, pair.b)}
    same = tuple(name for name in names if wanted in name and name not in told)
    chosen = replace(chosen, same=len(same))
    differs = bool(chosen.changed or chosen.only_a or chosen.only_b)
    return DiffResult(replace(result.difference, kernels=chosen, differs=differs), same)


def _named(kernels: Iterable[Kernel], wanted: str) -> tuple[Kernel, ...]:
    return tuple(kernel for kernel in kernels if wanted in kernel.name)
