"""Would torch use a snapshot on this machine, and which one would it use?"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from .environment import compare
from .errors import EnvironmentMismatch, NotFound, Unproven
from .manifest import Header, Snapshot
from .models import Comparison, Difference, Fact, Fingerprint
from .naming import is_much_smaller
from .repository import Repository
from .units import count, short_id

JOBS_PYTHON = "install cachekeeper beside the job's torch, and run it with the job's Python"
_GRAPHS = ("fxgraph", "aotautograd", "precompile")
_WORK = (*_GRAPHS, "triton")
_GPU = "cuda:"
_MOST_GPUS = 1024


def fit(header: Header, here: Fingerprint) -> Comparison:
    """The environment that a snapshot was made on, against this one."""
    graphs = any(header.entries_of(kind) for kind in _GRAPHS)
    comparison = compare(header.fingerprint, here, cpu_code=header.entries_of("native") > 0, graphs=graphs)
    wrong = _wrong_targets(header, here)
    if wrong is None:
        return comparison
    if wrong.group == "must":
        return replace(comparison, must=(*comparison.must, wrong))
    return replace(comparison, should=(*comparison.should, wrong))


def _wrong_targets(header: Header, here: Fingerprint) -> Difference | None:
    """Kernels in the snapshot that were not built for the GPUs here, whatever its fingerprint says.

    They do not fit where none was built for a GPU of this machine; where others were, they are told.
    """
    gpu = here.must.get("gpu", Fact(unknown="not recorded"))
    if gpu.unknown:
        return None
    gpus = gpu.value if isinstance(gpu.value, list) else []
    ours = {str(gpu["capability"]) for gpu in gpus if isinstance(gpu, dict) and gpu.get("capability")}
    theirs = {_capability(target) for target in header.targets}
    if theirs <= ours:
        return None
    names = ", ".join(sorted(theirs))
    if not ours:  # a machine may keep what another one uses
        return Difference("should", "kernels", names, "no GPU", "nothing here can load them")
    here_are = ", ".join(sorted(ours))
    if theirs & ours:
        effect = f"no GPU here can load those for {', '.join(sorted(theirs - ours))}"
        return Difference("should", "kernels", names, here_are, effect)
    return Difference("must", "kernels", names, here_are, "no GPU here can load them")


def _capability(target: str) -> str:
    """ "cuda:90" -> "sm_90", "hip:gfx942" -> "gfx942"."""
    backend, _, arch = target.partition(":")
    return f"sm_{arch}" if backend == "cuda" else arch


def left_out(devices: Iterable[str], machines: Mapping[str, Fingerprint | None]) -> str:
    """The GPUs that are not among devices, as "cuda:1 to cuda:7, of the 8 GPUs here".

    Args:
        devices: as "cuda:0"; "cuda:0, cuda:1" for several.
        machines: what to call one, as "here" -> its environment. The one with the most GPUs counts.

    Returns:
        "" where each GPU is among them, where none is, and where no machine is known to have others.
    """
    each = {name for device in devices for name in device.split(", ")}
    known = {int(name[len(_GPU) :]) for name in each if name.startswith(_GPU) and name[len(_GPU) :].isdecimal()}
    word, number = max(((word, _gpus(item)) for word, item in machines.items()), key=lambda pair: pair[1])
    lacking = sorted(set(range(number)) - known)
    if not known or not lacking:
        return ""
    runs = [[index for _, index in run] for _, run in groupby(enumerate(lacking), lambda pair: pair[1] - pair[0])]
    names = ", ".join(f"{_GPU}{run[0]}" + (f" to {_GPU}{run[-1]}" if len(run) > 1 else "") for run in runs)
    return f"{names}, of the {count(number, 'GPU')} {word}"


def _gpus(fingerprint: Fingerprint | None) -> int:
    """The number of GPUs that torch sees there; 0 where that is not known."""
    fact = fingerprint.should.get("gpu_count") if fingerprint else None
    number = fact.value if fact and not fact.unknown else 0
    return number if isinstance(number, int) and number <= _MOST_GPUS else 0


def newest_fitting(snapshots: Iterable[Snapshot], here: Fingerprint, proven: bool = False) -> Snapshot | None:
    """The first of the snapshots, given newest first, that is whole and that torch would use here.

    Args:
        proven: of those with a certificate alone.
    """
    return next((snapshot for snapshot in snapshots if _would_do(snapshot.header, here, proven)), None)


def _would_do(header: Header, here: Fingerprint, proven: bool) -> bool:
    return not header.damaged and (header.proof is not None or not proven) and fit(header, here).fits


def by_preference(
    repository: Repository, snapshots: Sequence[Snapshot], here: Fingerprint, proven: bool = False
) -> Iterator[Snapshot]:
    """Those that `newest_fitting` could take, newest first; last those that are a part of what was there before."""
    lesser = []
    for snapshot in snapshots:
        if not _would_do(snapshot.header, here, proven):
            continue
        if _why_lesser(repository, snapshot, snapshots, here, proven):
            lesser.append(snapshot)
        else:
            yield snapshot
    yield from lesser


def passed_over(
    repository: Repository, snapshots: Sequence[Snapshot], chosen: Snapshot, here: Fingerprint, proven: bool = False
) -> tuple[str, ...]:
    """A note where the newest that fits was not chosen, as it is a part of what was there before."""
    newest = newest_fitting(snapshots, here, proven)
    if newest is None or newest.id == chosen.id:
        return ()
    why = _why_lesser(repository, newest, snapshots, here, proven)
    return (f"the newer {short_id(newest.id)} was passed over: {why}",) if why else ()


def _why_lesser(
    repository: Repository, snapshot: Snapshot, snapshots: Sequence[Snapshot], here: Fingerprint, proven: bool
) -> str:
    """Why a snapshot is a last resort: there is no work in it, or it was refused its name; else ""."""
    header = snapshot.header
    if not any(map(header.entries_of, _WORK)):
        return "it holds no graph and no kernel"
    before = next((item.header for item in snapshots if item.id == header.parent), None)
    if before is None or not is_much_smaller(header, before) or not _would_do(before, here, proven):
        return ""
    if repository.ever_pointed(header.name, snapshot.id) is not False:
        return ""
    entries = f"{count(header.entries, 'entry')}, {before.entries:,} before"
    return f"{header.name} did not move to it, as it is much smaller ({entries})"


def choose(
    repository: Repository, reference: str, here: Fingerprint, proven: bool = False, without: Collection[str] = ()
) -> Snapshot:
    """The snapshot behind a reference; "latest" is the newest that fits this machine.

    Args:
        proven: only one with a certificate will do.
        without: full ids that "latest" passes over.

    Raises:
        NotFound: there is none.
        Unproven: the one that was asked for has no certificate, or none that fits has one.
    """
    if reference != "latest":
        snapshot = repository.header(repository.resolve(reference))
        if proven and not snapshot.header.proof:
            raise _unproven(
                repository, f"snapshot {short_id(snapshot.id)} has no proof that a fresh process hits", here
            )
        return snapshot
    return latest(repository, here, proven, without)[0]


def latest(
    repository: Repository, here: Fingerprint, proven: bool = False, without: Collection[str] = ()
) -> tuple[Snapshot, tuple[str, ...]]:
    """The newest snapshot that fits this machine, and what a person should know of that choice.

    One without any graph or kernel, or that was refused its name since it is much smaller, is the last to be taken.

    Raises:
        NotFound, Unproven: as `choose` says.
    """
    listing = repository.snapshots()
    snapshots = [each for each in listing.snapshots if each.id not in without]
    found = next(by_preference(repository, snapshots, here, proven), None)
    if found is None and proven and newest_fitting(listing.snapshots, here) is not None:
        raise _unproven(repository, f"no snapshot in {repository.store.url} that fits this machine has a proof", here)
    if found is None and listing.snapshots and (no_torch := here.must["torch"].unknown):
        which = f"which of {count(len(listing.snapshots), 'snapshot')} in {repository.store.url} fits"
        raise NotFound(f"{no_torch}: {which} is not known", hint=JOBS_PYTHON)
    if found is None:
        newest = listing.snapshots[0] if listing.snapshots else None
        facts = (
            [f"{item.name}  {item.theirs} -> {item.ours}" for item in fit(newest.header, here).must] if newest else []
        )
        raise NotFound(
            f"none of {count(len(listing.snapshots), 'snapshot')} in {repository.store.url} fits this machine",
            facts=([f"the newest, {short_id(newest.id)}, differs in"] if newest else []) + facts + listing.unreadable,
            hint="see them all with `cachekeeper ls`",
        )
    return found, passed_over(repository, snapshots, found, here, proven)


def identified(repository: Repository, reference: str, here: Callable[[], Fingerprint]) -> str:
    """The full id behind a reference, "latest" among them; this environment is looked at for that alone.

    Raises:
        NotFound: there is none.
    """
    return choose(repository, reference, here()).id if reference == "latest" else repository.resolve(reference)


def _unproven(repository: Repository, message: str, here: Fingerprint) -> Unproven:
    other = next(by_preference(repository, repository.snapshots().snapshots, here, proven=True), None)
    hint = "prove a cache with `cachekeeper warmup TARGET --snapshot NAME`; without --require-proof it is restored"
    if other is not None:
        proof = other.header.proof
        whose = f", for {proof.target}" if proof else ""
        hint = f"{short_id(other.id)} is proven{whose}: `cachekeeper restore {short_id(other.id)} --require-proof`"
    return Unproven(message, hint=hint)


def mismatch_error(
    repository: Repository, snapshot: Snapshot, comparison: Comparison, here: Fingerprint
) -> EnvironmentMismatch:
    """The error that lists the facts side by side and names a snapshot that fits."""
    if without := here.must["torch"].unknown:
        return EnvironmentMismatch(
            f"{without}: whether snapshot {short_id(snapshot.id)} fits is not known", hint=JOBS_PYTHON
        )
    facts = [
        f"{item.name}  {item.theirs}   here {item.ours}" + (f"   ({item.effect})" if item.effect else "")
        for item in comparison.must
    ]
    other = next(by_preference(repository, repository.snapshots().snapshots, here), None)
    if other is not None:
        hint = f"{short_id(other.id)} matches this machine: `cachekeeper restore {short_id(other.id)}`"
    elif all(item.name in _variables(snapshot.header.fingerprint, here) for item in comparison.must):
        settings = (
            f"unset {d.name}" if d.theirs == "not set" else f"export {d.name}={shlex.quote(d.theirs)}"
            for d in comparison.must
        )
        hint = "torch's keys hold these variables; for this snapshot: " + "; ".join(settings)
    else:
        allowed = f"cachekeeper restore {short_id(snapshot.id)} --allow-mismatch"
        hint = f"no snapshot in this store matches this machine; `{allowed}` restores it all the same"
    return EnvironmentMismatch(
        f"snapshot {short_id(snapshot.id)} was made on another environment", facts=facts, hint=hint
    )


def _variables(*fingerprints: Fingerprint) -> set[str]:
    """Names of the environment variables that fingerprints hold."""
    values = [
        fingerprint.must["environment"].value for fingerprint in fingerprints if "environment" in fingerprint.must
    ]
    return {name for value in values if isinstance(value, dict) for name in value}
