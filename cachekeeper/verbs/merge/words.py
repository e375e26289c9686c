"""What a merge says: errors with the facts side by side, and notes."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

from ...errors import CheckFailed, DamagedStore, EnvironmentMismatch
from ...manifest import Manifest, PackRow
from ...models import Difference
from ...units import count, listed, short_id
from .union import Conflict, Union, Version

_MOST_FACTS = 12
_MOST_FILES = 3
_NAME = 32
_GRAPHS = ("fxgraph", "aotautograd")
_CODE = ("triton", "module", "native", "autotune")
Differences = Sequence[Difference]


def conflict_error(conflicts: Sequence[Conflict], command: Sequence[str], prefer: str, variants: bool) -> CheckFailed:
    """The error that lists entries with several versions and says how to settle that.

    Args:
        command: the words of the command that was given, without what it prefers.
    """
    kinds = Counter(conflict.kind for conflict in conflicts)
    facts = [", ".join(f"{number:,} {kind}" for kind, number in kinds.items())]
    facts += [described(conflict) for conflict in conflicts[:_MOST_FACTS]]
    if len(conflicts) > _MOST_FACTS:
        facts.append(f"and {len(conflicts) - _MOST_FACTS:,} more (all of them with --dry-run --json)")
    hint = f"to take the first one's version of each, whole: `{shlex.join([*command, '--prefer', 'first'])}`"
    if kinds.keys() & set(_GRAPHS) and not variants:
        hint += "; add --variants if they ran different shapes, so that each keeps its graphs"
    if prefer:
        hint = f"{prefer} has none of these; " + hint
    what = count(len(conflicts), "entry")
    verb = "has" if len(conflicts) == 1 else "have"
    return CheckFailed(
        f"{what} {verb} several versions in these snapshots, so nothing was saved", facts=facts, hint=hint
    )


def described(conflict: Conflict) -> str:
    """A conflict in a line: the entry, and of each version who has it and which files only it has."""
    versions = "   ".join(_version(version, conflict.entry) for version in conflict.versions)
    return f"{conflict.kind}  {conflict.entry}   {versions}"


def _version(version: Version, entry: str) -> str:
    names = [path.rpartition("/")[2] for path in version.files]
    shown = [name if len(name) <= _NAME else f"{name[:8]}...{name[-8:]}" for name in names]
    return f"{', '.join(map(short_id, version.snapshots))}: {listed(shown, _MOST_FILES) or 'no other file'}"


def mismatch_error(one: Manifest, other: Manifest, differences: Differences) -> EnvironmentMismatch:
    """The error that lists the facts of two environments side by side."""
    left, right = short_id(one.id), short_id(other.id)
    torch = {short_id(source.id): source.header.fingerprint.must.get("torch") for source in (one, other)}
    unknown = [f"{id}  {fact.unknown}" for id, fact in torch.items() if fact and fact.unknown]
    if unknown:
        return EnvironmentMismatch(
            "what these snapshots depend on is not known: a merge could mix environments",
            facts=unknown,
            hint="save such a cache again with the job's Python: `cachekeeper snapshot`, or `cachekeeper import`",
        )
    return EnvironmentMismatch(
        f"snapshots {left} and {right} differ in their environments, which never mix",
        facts=[f"{item.name}  {item.theirs} in {left}   {item.ours} in {right}" for item in differences],
        hint="merge snapshots of one environment; `cachekeeper ls` shows which that is",
    )


def packs_error(sources: Sequence[Manifest], wrong: Sequence[PackRow], sizes: Mapping[str, int]) -> DamagedStore:
    """The error for packs that are not there, or not as long as they were."""
    facts = []
    for pack in wrong[:_MOST_FACTS]:
        users = [short_id(source.id) for source in sources if any(pack.id == row.id for row in source.tables.packs)]
        state = "missing"
        if pack.id in sizes:
            cut = sizes[pack.id] != pack.size
            state = f"{sizes[pack.id]:,} bytes instead of {pack.size:,}" if cut else "damaged, as this machine has seen"
        facts.append(f"pack {short_id(pack.id)}  {state}   needed by {', '.join(users)}")
    return DamagedStore(
        f"{count(len(wrong), 'pack')} of these snapshots cannot be used, so nothing was saved",
        facts=facts,
        hint="see what is lost with `cachekeeper verify ID`; `cachekeeper copy` brings it from a store that has it",
    )


def should_notes(sources: Sequence[Manifest], lesser: Sequence[tuple[int, Differences]]) -> tuple[str, ...]:
    """What differs between environments that may be merged all the same."""
    first = short_id(sources[0].id)
    return tuple(
        f"{item.name} {item.theirs} in {first}, {item.ours} in {short_id(sources[number].id)}"
        + (f" ({item.effect})" if item.effect else "")
        for number, differences in lesser
        for item in differences
    )


def union_notes(sources: Sequence[Manifest], union: Union, damaged: int) -> tuple[str, ...]:
    """What follows from how entries were chosen; nothing yet where some have to be.

    Args:
        damaged: number of entries in the union that were saved damaged.
    """
    if union.open:
        return ()
    notes = [*_additions(sources, union), *_choices(sources, union)]
    if damaged:
        notes.append(f"{count(damaged, 'damaged entry')} in it: mend the cache that has them and save that again")
    notes.append(
        "no certificate carries over to a union: `cachekeeper warmup ... --snapshot` or `cachekeeper verify --replay` "
        "proves that a job hits all of it"
    )
    return tuple(notes)


def _additions(sources: Sequence[Manifest], union: Union) -> list[str]:
    giving = {part.source for part in union.parts}
    idle = [short_id(source.id) for number, source in enumerate(sources) if number not in giving]
    return [f"nothing was taken from {', '.join(idle)}: the others have each of its entries"] if idle else []


def _choices(sources: Sequence[Manifest], union: Union) -> list[str]:
    settled = [conflict for conflict in union.conflicts if conflict.taken]
    notes = []
    graphs = [conflict for conflict in settled if conflict.kind in _GRAPHS]
    if graphs:
        notes.append(
            f"of {count(len(graphs), 'graph entry')} one version was kept; where its guards do not hold, as for other "
            "shapes, torch compiles again: --variants keeps them all"
        )
    if any(conflict.kind in _CODE for conflict in settled):
        notes.append(
            "of kernels, modules or libraries with several versions one was taken, and graphs of every snapshot load "
            "that one; torch names them by source and options, so that versions are builds of the same thing"
        )
    return notes
