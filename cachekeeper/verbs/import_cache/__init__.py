"""import: a cache from somewhere else becomes a snapshot, with all that `snapshot` refuses.

sources     a directory, an archive, a Mega-Cache  ->  a directory to save
made_on     which environment it is recorded for, and what speaks against that
stores      another store of cachekeeper: copied, not saved anew
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...errors import CachekeeperError, DamagedCache, UsageError
from ...manifest import Header
from ...progress import Progress
from ...stores import Store
from ...units import short_id
from ..copy import CopyResult
from ..snapshot import SnapshotResult, snapshot
from . import made_on, stores
from .sources import Found, opened

__all__ = ["ImportResult", "import_cache"]


@dataclass(frozen=True)
class ImportResult:
    """What was imported.

    Attributes:
        source: as given.
        format: "directory", "tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst", "mega-cache" or "store".
        root: the directory of the source that was taken for the cache; "" is its top.
        saved: the snapshot; None where the source was a store.
        copied: what was copied from another store; None where the source was none.
        named: the name that was given to what was copied, or "".
        artifacts: type -> number of artifacts of a Mega-Cache.
        lacks: what it does not hold, in words: torch makes that again.
        passed_over: number of files of an archive that are not worth keeping: locks, temporary files and the like.
        notes: what a person should know, a sentence each.
    """

    source: str
    format: str
    root: str = ""
    saved: SnapshotResult | None = None
    copied: CopyResult | None = None
    named: str = ""
    artifacts: Mapping[str, int] | None = None
    lacks: tuple[str, ...] = ()
    passed_over: int = 0
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True where all was taken, and the name points to it."""
        if self.copied is not None:
            return self.copied.ok
        return self.saved is not None and not self.saved.shrunk_from


def import_cache(
    source: str | os.PathLike[str],
    name: str | None = None,
    *,
    store: str | os.PathLike[str] | Store | None = None,
    root: str | None = None,
    only: Sequence[str] = (),
    fingerprint: str | os.PathLike[str] | None = None,
    message: str = "",
    metrics: Mapping[str, float] | None = None,
    tags: Mapping[str, str] | None = None,
    allow_damaged: bool = False,
    allow_secrets: bool = False,
    allow_mismatch: bool = False,
    force: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> ImportResult:
    """Save a cache that lies elsewhere, or in another form, as a snapshot; nothing in it is unpickled or loaded.

    Args:
        source: a directory; a tar file, plain or compressed with gzip, bzip2, xz or zstd; what
            `torch.compiler.save_cache_artifacts` returned; "-" for such bytes on standard input; or another store, a
            directory or URL, whose snapshots are copied.
        name: points to the snapshot afterwards; for a store with several, `only` must name one.
        store: where to; default as configured.
        root: the directory in the source that is the cache, where there are several.
        only: snapshots of a store, by name or id; none: all of them.
        fingerprint: file with what `cachekeeper fingerprint --json` printed where the cache was made. By default what
            an `export` says of itself, unsigned, is recorded; all else as made in this environment.
        message, metrics, tags: as for `snapshot`; where they are not given, what an `export` says.
        allow_damaged, allow_secrets, force: as for `snapshot`.
        allow_mismatch: record it for an environment that its kernels speak against.

    Raises:
        NotFound: no such file, or nothing in it.
        UsageError: it is nothing that can be imported, or what it holds does not belong into a cache.
        DamagedCache: the file is cut or changed, or entries are structurally damaged; nothing is saved.
        EnvironmentMismatch: the kernels were made for another GPU, or by another Triton.
        LocalDiskError: not enough space to unpack it.
    """
    place = os.fspath(source)
    if stores.is_store(place):
        given = {"--root": root, "--fingerprint": fingerprint, "--message": message, "--metric": metrics, "--tag": tags}
        flags = {
            "--allow-damaged": allow_damaged,
            "--allow-secrets": allow_secrets,
            "--allow-mismatch": allow_mismatch,
            "--force": force,
        }
        _refuse({**given, **flags}, f"{place} is a store, and its snapshots are copied as they are")
        copied, named = stores.bring(place, store, name, only, progress)
        return ImportResult(place, "store", copied=copied, named=named)
    _refuse({"--only": only}, f"{place} is no store of cachekeeper")
    with opened(place, root, progress) as found, _told_of(found):
        said, damaged = made_on.said_of_itself(found)
        environment, notes = made_on.environment(found, fingerprint, said, allow_mismatch)
        saved = snapshot(
            name,
            cache_dir=found.directory,
            store=store,
            message=message or (said.message if said else ""),
            metrics={**(said.metrics if said else {}), **(metrics or {})},
            tags={**(said.tags if said else {}), **(tags or {})},
            wait=0 if found.unpacked else None,
            allow_damaged=allow_damaged,
            allow_secrets=allow_secrets,
            force=force,
            origin=f"imported from {found.label} ({found.format})",
            made_on=environment,
            progress=progress,
        )
    notes = (*found.notes, *damaged, *notes, _proof_note(saved))
    lacks = (*found.lacks, *_lacks(saved.snapshot.header, bool(found.artifacts)))
    return ImportResult(
        place,
        found.format,
        found.root,
        saved,
        artifacts=found.artifacts,
        lacks=lacks,
        passed_over=found.passed_over,
        notes=notes,
    )


def _refuse(given: Mapping[str, object], why: str) -> None:
    senseless = [option for option, value in given.items() if value]
    if senseless:
        raise UsageError(f"{why}: leave out {' and '.join(senseless)}")


@contextlib.contextmanager
def _told_of(found: Found) -> Iterator[None]:
    """Errors name the source, not the directory that it was unpacked into and that is gone when they are read."""
    try:
        yield
    except CachekeeperError as error:
        if not found.unpacked:
            raise

        def told(text: str) -> str:
            return text.replace(str(found.directory), found.label)

        hint = told(error.hint)
        if isinstance(error, DamagedCache):
            hint = "make it again from a good cache; --allow-damaged saves the entries as they are"
        raise type(error)(told(error.message), facts=map(told, error.facts), hint=hint) from error


def _lacks(header: Header, mega_cache: bool) -> tuple[str, ...]:
    """Kinds that a cache usually has and this one does not."""
    lacks = []
    if not header.entries_of("fxgraph"):
        lacks.append("FX graphs")
    if not header.entries_of("aotautograd"):
        lacks.append("AOTAutograd entries")
    if mega_cache:
        return tuple(lacks)
    if not header.entries_of("triton"):
        lacks.append("Triton kernels" + (" (right for a CPU job)" if header.entries_of("native") else ""))
    elif not header.entries_of("module"):
        lacks.append("generated modules: torch writes them again")
    return tuple(lacks)


def _proof_note(saved: SnapshotResult) -> str:
    reference = saved.name if saved.name_moved else short_id(saved.snapshot.id)
    return f"proof that a job hits it: `cachekeeper verify {shlex.quote(reference)} --replay TARGET`"
