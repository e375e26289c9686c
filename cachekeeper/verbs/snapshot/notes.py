"""What a person should know of a saved snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...inductor.layout import may_be_at_top
from ...livecache import Scan
from ...manifest import also_label
from ...masking import HIDDEN
from ...models import Fingerprint
from ...reading import Taken
from ...units import count, format_bytes, listed

NOT_ENTRIES = ("other", "headers")
GRAPHS = ("fxgraph", "aotautograd", "triton")
_SHOWN_SECRETS = 3
_SHOWN_FILES = 3


def notes(
    scan: Scan,
    kept: Sequence[Taken],
    also: Mapping[str, Path],
    secrets: Sequence[str],
    made_on: Fingerprint,
    first: bool,
) -> tuple[str, ...]:
    """What stands in a snapshot, or does not, in sentences; the weightiest first.

    Args:
        also: label -> directory that was saved beside the cache.
        secrets: "path  kind" of what was saved though it looks like secrets.
        first: nothing was saved under this name, or saved from or restored into this directory, before.
    """
    return (
        *_unknown(made_on),
        *_secrets(secrets),
        *_of_files(scan, kept, also, first),
        *_hidden(made_on),
    )


def not_marked(why: str) -> tuple[str, ...]:
    """That the directory is still compared with what it was compared with before; nothing where `why` is ""."""
    return (f"status and watch do not compare the directory with this snapshot: {why}",) if why else ()


def _unknown(made_on: Fingerprint) -> tuple[str, ...]:
    unknown = made_on.must["torch"].unknown
    return (f"{unknown}: a restore cannot tell whether it fits",) if unknown else ()


def _secrets(facts: Sequence[str]) -> tuple[str, ...]:
    if not facts:
        return ()
    more = ", ..." if len(facts) > _SHOWN_SECRETS else ""
    return (f"{count(len(facts), 'file')} with what looks like secrets: {'; '.join(facts[:_SHOWN_SECRETS])}{more}",)


def _of_files(scan: Scan, kept: Sequence[Taken], also: Mapping[str, Path], first: bool) -> tuple[str, ...]:
    notes = []
    misdirected = sum(item.misdirected for item in kept)
    if misdirected:
        notes.append(
            f"{count(misdirected, 'file')} pointed to another directory, which would have been read instead; "
            "the snapshot has them right"
        )
    if not any(item.source.place.kind in GRAPHS for item in kept):
        notes.append("there is no graph and no kernel in it: did the job end before its first graph?")
    notes += _no_entries(kept)
    if scan.headers and first:
        notes.append(
            "precompiled headers were left out; --with-headers keeps them (CPU only, about 147 MB a set of flags)"
        )
    for label, path in also.items():
        notes.append(f"with {path} as {label}")
    return tuple(notes)


def _no_entries(kept: Sequence[Taken]) -> list[str]:
    """That other files are saved too, where torch makes nothing of their names."""
    other = [item for item in kept if item.source.place.kind == "other" and not also_label(item.source.path)]
    strange = [item for item in other if not may_be_at_top(item.source.path.partition("/")[0])]
    if not strange:
        return []
    size = format_bytes(sum(item.source.live.size for item in strange))
    names = listed(sorted(item.source.path for item in strange), _SHOWN_FILES)
    are = "is no entry" if len(strange) == 1 else "are no entries"
    too = "it is" if len(strange) == 1 else "they are"
    return [f"{count(len(strange), 'file')} ({size}) {are} of a compile cache: {names}; {too} saved too"]


def _hidden(environment: Fingerprint) -> tuple[str, ...]:
    """The note that says what was recorded without its value."""
    hidden: list[str] = []
    for fact in (environment.must.get("environment"), environment.recorded.get("variables_without_effect")):
        values = fact.value if fact and isinstance(fact.value, Mapping) else {}
        hidden += [key for key, value in values.items() if str(value).startswith("sha256:") or HIDDEN in str(value)]
    command = environment.recorded.get("command")
    if command and HIDDEN in str(command.value):
        hidden.append("a part of the command")
    return (f"recorded without what is secret: {', '.join(hidden)}",) if hidden else ()
