"""Which environment an imported cache is recorded for.

An export says it; other archives do not. Their kernels do, in part: what they were built for, and by which Triton.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...config import model_files
from ...disk import read_into
from ...environment import fingerprint, intact, summary
from ...errors import EnvironmentMismatch, UsageError
from ...exported import Exported, read_in
from ...fitting import fit
from ...inductor import check_file, is_group
from ...inductor.layout import EXPORTED
from ...livecache import LiveCache, SourceFile
from ...manifest import FORMAT, Header
from ...models import Difference, Fingerprint
from ...units import harmless, now_utc, short_id
from ...version import __version__
from .sources import Found

_METADATA_LIMIT = 1 << 20
_FINGERPRINT_LIMIT = 16 << 20


class Evidence(NamedTuple):
    """What the kernels of a cache say: targets, as "cuda:90", and versions of Triton, each -> number of kernels."""

    targets: Counter[str]
    tritons: Counter[str]


def environment(
    found: Found, given: str | os.PathLike[str] | None, said: Exported | None, allow_mismatch: bool
) -> tuple[Fingerprint, tuple[str, ...]]:
    """The fingerprint to record, and what a person should know of it.

    Args:
        given: file with the fingerprint of the machine where the cache was made; None: as is `said`.
        said: what the cache says of itself; None: it is taken for one of this machine.

    Raises:
        EnvironmentMismatch: the kernels say otherwise, and `allow_mismatch` does not say that this is fine.
        UsageError: the file holds no fingerprint.
    """
    made, where, claim = _made(found, given, said)
    against = contradictions(evidence(found.directory), made)
    side = "there" if given or said else "here"
    if against and not allow_mismatch:
        raise EnvironmentMismatch(
            f"{found.label} was not {where}",
            facts=[f"{item.name}  {item.theirs}   {side} {item.ours}" for item in against],
            hint="there `cachekeeper fingerprint --json > FILE`, here --fingerprint FILE; or --allow-mismatch",
        )
    notes = [f"{item.name} {item.theirs}, recorded as {item.ours} (--allow-mismatch)" for item in against]
    return made, (*notes, f"recorded as made {claim}")


def _made(found: Found, given: str | os.PathLike[str] | None, said: Exported | None) -> tuple[Fingerprint, str, str]:
    """The fingerprint, and where that is, in words: for an error, and for a note."""
    if given:
        made = read_fingerprint(Path(given))
        return made, f"made in the environment of {given}", f"where {given} is from: {summary(made)}"
    if said:
        made = said.fingerprint
        claim = (
            f"on {summary(made)}, as {found.label} says of itself ({short_id(said.snapshot)} of {said.created[:10]})"
        )
        return made, "made in the environment that it names", harmless(f"{claim}; if not: --fingerprint FILE")
    made = fingerprint(**model_files())
    return made, "made in this environment", f"here: {summary(made)} (if not: --fingerprint FILE)"


def said_of_itself(found: Found) -> tuple[Exported | None, tuple[str, ...]]:
    """What an export says of its snapshot, or None; and a note where it says nothing that can be used."""
    try:
        return read_in(found.directory), ()
    except ValueError as error:
        return None, (f"its {EXPORTED} is damaged, and not used: {harmless(str(error))}",)


def read_fingerprint(path: Path) -> Fingerprint:
    """The fingerprint in a file that `cachekeeper fingerprint --json` made.

    Raises:
        UsageError: it is no such file.
    """
    from ...schema import parse

    try:
        with open(path, "rb") as file:
            document = json.loads(file.read(_FINGERPRINT_LIMIT))
        inner = document.get("fingerprint", document)
        found = parse(Fingerprint, json.dumps(inner).encode())
    except OSError as error:
        raise _no_fingerprint(path, error.strerror or str(error)) from None
    except (ValueError, AttributeError, RecursionError) as error:
        raise _no_fingerprint(path, str(error).splitlines()[0]) from None
    assert isinstance(found, Fingerprint)
    if "torch" not in found.must:
        raise _no_fingerprint(path, "it says nothing of torch")
    if not intact(found):
        raise _no_fingerprint(path, f"its facts are not those that its id {found.id} was made of")
    return found


def _no_fingerprint(path: Path, reason: str) -> UsageError:
    facts = [f"file    {path}", f"reason  {reason}"]
    hint = "where the cache was made: `cachekeeper fingerprint --json > FILE`"
    return UsageError("that is no fingerprint of an environment", facts=facts, hint=hint)


def evidence(directory: Path) -> Evidence:
    """Look at the metadata of the kernels of a cache."""
    found = Evidence(Counter(), Counter())
    for name, data in _metadata(directory):
        if target := check_file("triton", name, data).target:
            found.targets[target] += 1
            version = json.loads(data).get("triton_version")
            if isinstance(version, str) and version:
                found.tritons[version] += 1
    return found


def _metadata(directory: Path) -> Iterator[tuple[str, bytes]]:
    with LiveCache(directory) as live:
        for file in live.scan().files:
            if _is_metadata(file):
                buffer = bytearray()
                try:
                    length, _ = read_into(file.root, file.live, buffer)
                except OSError:  # it changes, or cannot be read: what to do about it, the snapshot says
                    continue
                yield file.path, bytes(buffer[:length])


def _is_metadata(file: SourceFile) -> bool:
    is_json = file.path.endswith(".json") and not is_group(file.path)
    return file.place.kind == "triton" and is_json and file.live.size <= _METADATA_LIMIT


def contradictions(found: Evidence, made: Fingerprint) -> list[Difference]:
    """What the kernels of a cache say against an environment that it is said to be from."""
    against = []
    if found.targets:
        comparison = fit(_header(tuple(sorted(found.targets)), made), made)
        against = [item for item in (*comparison.must, *comparison.should) if item.name == "kernels"]
    triton = made.must.get("triton")
    if triton is not None and not triton.unknown and found.tritons:
        ours = str(triton.value or "none")
        theirs = sorted({_release(version) for version in found.tritons})
        if _release(ours) not in theirs:
            against.append(Difference("must", "triton", ", ".join(theirs), ours))
    return against


def _release(version: str) -> str:
    """ "3.6.0+git9844da95" -> "3.6.0"."""
    return version.partition("+")[0]


def _header(targets: tuple[str, ...], made: Fingerprint) -> Header:
    """A snapshot of nothing but targets."""
    return Header(
        FORMAT, __version__, now_utc(), "", "", "", {}, (), (), "", {}, made, counts={}, triton_dirs={}, stored=0,
        targets=targets,
    )  # fmt: skip
