"""A cache directory alone: what is damaged by itself, and dropped so that torch builds it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...disk import explained, locked
from ...errors import EmptyCache
from ...evidence import evidence, moving
from ...livecache import LiveCache, SourceFile
from ...mending import take_away
from ...progress import Progress
from ...reading import structure_damage
from ...staging import QUARANTINE, unfinished
from .judging import judge, notes_of, refuse_other_directories, settled, still_damaged
from .result import VerifyResult

_LEFT_ALONE = "left alone, since torch would not build it again"


def verify_structure(directory: Path, progress: Progress) -> VerifyResult:
    """Check the structure of every file."""
    with LiveCache(directory) as live:
        files = live.scan(with_headers=True).files
        _refuse_empty(directory, files)
        return _found(files, structure_damage(files, partial(_report, progress, len(files))))


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
        result = replace(_found(scan.files, judged.damaged), repair=True, dropped=dropped)
        if dropped or unfinished(directory):
            moved = take_away(directory, dropped, place=QUARANTINE, evidence=written_down)
            result = replace(result, quarantine=moved.aside)
        unmended = kept | still_damaged(directory, dropped)
        return replace(result, unmended=unmended, notes=notes_of(directory, judged.being_written, bool(dropped)))


def _refuse_empty(directory: Path, files: Sequence[SourceFile]) -> None:
    if not files:
        raise EmptyCache(f"{directory} holds no entry of a compile cache")


def _found(files: Sequence[SourceFile], damaged: Mapping[str, str]) -> VerifyResult:
    return VerifyResult("structure", len(files), sum(file.live.size for file in files), (), dict(damaged))


def _report(progress: Progress, total: int, done: int) -> None:
    progress("Checking", done, total)
