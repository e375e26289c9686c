"""A cache directory alone: what is damaged by itself, and dropped so that torch builds it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...disk import explained, locked, read_into
from ...errors import EmptyCache
from ...evidence import evidence, moving
from ...inductor.wrappers import names_triton
from ...livecache import LiveCache, SourceFile
from ...mending import take_away
from ...progress import Progress
from ...reading import structure_damage
from ...staging import QUARANTINE, unfinished
from .judging import judge, notes_of, refuse_other_directories, settled, still_damaged
from .result import VerifyResult

_LEFT_ALONE = "left alone, since torch would not build it again"
_NO_KERNEL = (
    "graphs launch kernels of Triton's, and none is here: torch writes those that are in the graphs' entries again, "
    "and builds the others again, unless TRITON_CACHE_DIR keeps them elsewhere"
)
_MOST_MODULES, _MODULE_BYTES = 200, 1 << 20


def verify_structure(directory: Path, progress: Progress) -> VerifyResult:
    """Check the structure of every file."""
    with LiveCache(directory) as live:
        files = live.scan(with_headers=True).files
        _refuse_empty(directory, files)
        found = _found(files, structure_damage(files, partial(_report, progress, len(files))))
        return replace(found, notes=_without_kernels(files))


def repair_structure(directory: Path, progress: Progress) -> VerifyResult:
    """Check it, and put what is damaged in quarantine."""
    with explained(directory, "use the cache directory"), locked(directory):
        with LiveCache(directory) as live:
            scan, fresh = settled(live, repair=True)
            _refuse_empty(directory, scan.files)
            refuse_other_directories(directory, scan.files)
            judged = judge(scan.files, fresh, progress=partial(_report, progress, len(scan.files)))
            foreign = {source.path for source in scan.files if source.place.kind == "other"}
            kept = {path: f"{reason}; {_LEFT_ALONE}" for path, reason in judged.damaged.items() if path in foreign}
            dropped = {judged.unit(path): reason for path, reason in judged.damaged.items() if path not in kept}
            written_down = evidence(directory, moving(scan.files, dropped, ()), (), judged.damaged, {})
            notes = _without_kernels(scan.files)
        result = replace(_found(scan.files, judged.damaged), repair=True, dropped=dropped)
        if dropped or unfinished(directory):
            moved = take_away(directory, dropped, place=QUARANTINE, evidence=written_down)
            result = replace(result, quarantine=moved.aside)
        unmended = kept | still_damaged(directory, dropped)
        notes += notes_of(directory, judged.being_written, bool(dropped))
        return replace(result, unmended=unmended, notes=notes)


def _refuse_empty(directory: Path, files: Sequence[SourceFile]) -> None:
    if not files:
        raise EmptyCache(f"{directory} holds no entry of a compile cache")


def _found(files: Sequence[SourceFile], damaged: Mapping[str, str]) -> VerifyResult:
    return VerifyResult("structure", len(files), sum(file.live.size for file in files), (), dict(damaged))


def _without_kernels(files: Sequence[SourceFile]) -> tuple[str, ...]:
    """A note where the kernels of graphs are gone, as the first modules say; it is no damage, since torch copes."""
    kinds = {file.place.kind for file in files}
    if "fxgraph" not in kinds or "triton" in kinds:
        return ()
    modules = [file for file in files if file.place.kind == "module" and file.live.size <= _MODULE_BYTES]
    return (_NO_KERNEL,) if any(map(_names_triton, modules[:_MOST_MODULES])) else ()


def _names_triton(source: SourceFile) -> bool:
    data = bytearray()
    try:
        size, _ = read_into(source.root, source.live, data)
    except OSError:
        return False
    return names_triton(bytes(data[:size]))


def _report(progress: Progress, total: int, done: int) -> None:
    progress("Checking", done, total)
