"""export: a snapshot leaves the store as a directory, a tar file or a Mega-Cache, every SHA-256 checked on the way.

formats     which of them        contents    the files as they are to be written
outputs     a new file or directory, whole or not at all
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ... import exported, megacache, trust
from ...disk import explained
from ...environment import cache_directory, fingerprint, summary
from ...errors import EmptyCache, UsageError
from ...manifest import ALSO, FileRow, Manifest, Snapshot
from ...progress import Progress
from ...repository import open_repository
from ...stores import Store
from ...units import count, short_id
from . import contents, outputs
from .formats import FORMATS, chosen_format

__all__ = ["FORMATS", "ExportResult", "export"]

# What a Mega-Cache does not carry: kind -> one entry of it in words.
_NOUNS = {
    "triton": "Triton kernel",
    "native": "C++ library",
    "autotune": "max-autotune timing",
    "headers": "precompiled header",
    "precompile": "file of dynamo",
    "fxgraph": "odd file among graphs",
    "aotautograd": "odd file among AOTAutograd entries",
    "other": "other file",
}
# What C++ libraries are built from.
_SOURCES = (".cpp", ".h", ".cu")
_REMARKS = {"triton": ", but for those in the bundles of graphs"}


@dataclass(frozen=True)
class ExportResult:
    """What was exported.

    Attributes:
        destination: the path written, or "-".
        format: one of FORMATS.
        files: number of files of the snapshot that are in it.
        bytes: their length; size: that of the archive or Mega-Cache, or the same again for a directory.
        for_dir: the cache directory that `placed` of the files name.
        artifacts: type -> number of artifacts of a Mega-Cache.
        lacks: what the format does not carry, with numbers.
        notes: what a person should know, a sentence each.
    """

    snapshot: Snapshot
    destination: str
    format: str
    files: int
    bytes: int
    size: int
    for_dir: Path
    placed: int
    artifacts: Mapping[str, int] | None = None
    lacks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def export(
    reference: str,
    destination: str | os.PathLike[str],
    *,
    store: str | os.PathLike[str] | Store | None = None,
    format: str | None = None,
    for_dir: str | os.PathLike[str] | None = None,
    with_unknown: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> ExportResult:
    """Write a snapshot to a new directory or file: whole, or not at all.

    It holds exactly the files of the snapshot, and but for a Mega-Cache what `import` records again: environment, tags,
    metrics and message. The same import gives the same files again. Nothing is looked at in this environment, since it
    may be for another.

    Args:
        reference: id, name, `name@{1}` or "latest", the newest that fits this machine.
        destination: a path where nothing is yet, or an empty directory; "-" for standard output.
        format: one of FORMATS; by default as the ending of the destination says.
        for_dir: the cache directory that files which name theirs are written for: Triton's groups, and graphs of
            kernels that were autotuned. Default: of a directory its own; else where the cache was made, or what torch
            would use here.
        with_unknown: put artifacts of types that torch 2.13 does not know into a Mega-Cache too; it refuses the whole.

    Raises:
        NotFound: no such snapshot.
        EmptyCache: a Mega-Cache can carry nothing of it.
        UsageError: the destination is there already, or the format does not go with it.
        DamagedStore: bytes in the store are not right; nothing was written.
        Untrusted: signatures are required (`CACHEKEEPER_REQUIRE_SIGNATURE`), and nobody trusted vouches for it.
        LocalDiskError: it cannot be written.
    """
    place = os.fspath(destination)
    kind = chosen_format(place, format)
    repository = open_repository(store)
    repository.require()
    identifier = trust.identified(repository, reference, fingerprint, trust.required(None))
    manifest = repository.manifest(identifier)
    if not manifest.tables.files:
        raise EmptyCache(f"snapshot {short_id(identifier)} holds nothing", hint="see the others with `cachekeeper ls`")
    base = _directory_named(place, kind, for_dir, manifest)
    rows = list(manifest.tables.files)
    left_out: dict[str, int] = {}
    if kind == "mega-cache":
        rows, left_out = _carried(manifest, with_unknown)
    total = sum(row.size for row in rows)
    with explained(place, "write " + ("standard output" if place == "-" else place)), outputs.Scratch(place) as scratch:
        files = contents.Contents(repository.store, manifest, base, scratch.file)
        files.fetch(rows, lambda done: progress("Exporting", done, total))
        size = outputs.write(place, kind, files, exported.encode(manifest))
    artifacts = Counter(found[0] for row in rows if (found := megacache.type_and_key(row.path)))
    return ExportResult(
        Snapshot(identifier, manifest.header),
        place if place == "-" else os.path.abspath(place),
        kind,
        len(rows),
        files.total,
        size,
        base,
        files.placed,
        artifacts=dict(artifacts) if kind == "mega-cache" else None,
        lacks=tuple(_in_words(left_out)),
        notes=(*_notes(manifest, kind, artifacts), *repository.store.caveats),
    )


def _directory_named(place: str, kind: str, given: str | os.PathLike[str] | None, manifest: Manifest) -> Path:
    if given is not None:
        if not os.fspath(given):
            raise UsageError("--for-dir is empty", hint="name the cache directory that the files will be in")
        return Path(os.path.abspath(os.path.expanduser(given)))
    if kind == "directory":
        return Path(os.path.abspath(place))
    made_in = manifest.header.cache_dir
    return Path(made_in) if made_in.startswith("/") else cache_directory().path


def _carried(manifest: Manifest, with_unknown: bool) -> tuple[list[FileRow], dict[str, int]]:
    """What a Mega-Cache carries, and as what the rest counts -> how often.

    Raises:
        EmptyCache: it carries nothing.
    """
    rows: list[FileRow] = []
    left: dict[str, set[str]] = {}
    for row in manifest.tables.files:
        found = megacache.type_and_key(row.path)
        if found and (with_unknown or found[0] in megacache.KNOWN_TYPES):
            rows.append(row)
        elif lost := f"type {found[0]}" if found else _lost(manifest, row):
            one = manifest.tables.entries[row.entry].path if lost == "triton" else row.path
            left.setdefault(lost, set()).add(one)
    if not rows:
        raise EmptyCache(
            f"snapshot {short_id(manifest.id)} holds nothing that a Mega-Cache carries",
            facts=_in_words({kind: len(entries) for kind, entries in left.items()}),
            hint="export it as a directory or a tar file",
        )
    return rows, {kind: len(entries) for kind, entries in sorted(left.items())}


def _lost(manifest: Manifest, row: FileRow) -> str:
    """As what a file counts that is in no Mega-Cache; "" for what torch writes again from a graph's entry."""
    kind = manifest.tables.entries[row.entry].kind
    if row.path.startswith(ALSO):
        return "also"
    if kind == "module" or (kind == "native" and row.path.endswith(_SOURCES)):
        return ""
    return "other" if kind == "native" and not row.path.endswith(".so") else kind


def _in_words(left_out: Mapping[str, int]) -> list[str]:
    lines = []
    for kind, number in left_out.items():
        if kind == "also":
            lines.append(f"{count(number, 'file')} of caches saved beside it")
        elif kind.startswith("type "):
            lines.append(f"{count(number, 'artifact')} of {kind}, which torch does not know (--with-unknown)")
        else:
            lines.append(count(number, _NOUNS[kind]) + _REMARKS.get(kind, ""))
    return lines


def _notes(manifest: Manifest, kind: str, artifacts: Mapping[str, int]) -> Iterable[str]:
    header = manifest.header
    if header.damaged:
        yield f"the snapshot was saved with {count(len(header.damaged), 'damaged entry')}"
    if header.secrets:
        yield f"the snapshot holds {count(len(header.secrets), 'file')} with what looks like secrets"
    if header.live:
        yield "the snapshot was taken while the cache was in use: " + "; ".join(header.live)
    if kind == "mega-cache":
        unknown = megacache.unknown_types(artifacts)
        if unknown:
            yield f"torch 2.13 refuses all of it, for its artifacts of type {', '.join(sorted(unknown))}"
        yield f"it cannot hold where it was made: {summary(header.fingerprint)}; `import --fingerprint FILE` says so"
    stays = "names, signatures and the proof" if header.proof else "names and signatures"
    yield f"{stays} stay behind: `cachekeeper copy` takes all along, to another store"
