"""What this machine saw a name point to last, so that an older state of a store is noticed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from .config import cache_home, keep_in_cache
from .disk import locked
from .errors import LocalDiskError, Replayed
from .records import checked, with_checksum
from .signatures import Claim
from .signing import PublicKey
from .units import now_utc, short_id


def refuse_older(
    url: str, move: Claim, keys: Sequence[PublicKey], *, allow_older: bool = False, remember: bool = True
) -> tuple[str, ...]:
    """Refuse what a name pointed to before; remember what it points to now.

    Args:
        keys: those that are trusted; what others vouch for is remembered apart.
        allow_older: a name may point to something older than what this machine has seen.
        remember: keep in mind what the name points to.

    Returns:
        What a person should know, a sentence each.

    Raises:
        Replayed: this machine has seen a later move of the name, or another of the same number.
    """
    path = _memory(url, move.name, keys)
    with _alone(path.parent, remember):
        seen = None if allow_older else _seen(path, move)
        if seen and (move.number < seen.number or (move.number == seen.number and move.snapshot != seen.snapshot)):
            raise _replayed(url, move, seen, path)
        if not remember or seen == move:
            return ()
        data = with_checksum({**move.document, "store": url, "when": now_utc()})
        keep_in_cache(path, data)
        with contextlib.suppress(OSError):
            if path.read_bytes() == data:
                return ()
    return (f"where {move.name} points cannot be remembered in {path.parent}: that it went back would go unnoticed",)


def _memory(url: str, name: str, keys: Sequence[PublicKey]) -> Path:
    text = json.dumps([url.rstrip("/"), name, sorted(key.id for key in keys)])
    return cache_home() / "trust" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


@contextlib.contextmanager
def _alone(directory: Path, writing: bool) -> Iterator[None]:
    """Of several restores one at a time, where that can be had."""
    with contextlib.ExitStack() as held:
        if writing:
            with contextlib.suppress(OSError, LocalDiskError):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                held.enter_context(locked(directory))
        yield


def _seen(path: Path, move: Claim) -> Claim | None:
    try:
        document = checked(path.read_bytes())
        return Claim(document["snapshot"], document["name"], int(document["number"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Replayed(
            f"cannot tell whether {move.name} went back: what this machine remembers of it cannot be read",
            facts=[f"{path}  {error}"],
            hint="restore once more with --allow-older, if you know that it did not",
        ) from None


def _replayed(url: str, move: Claim, seen: Claim, path: Path) -> Replayed:
    return Replayed(
        f"{move.name} has gone back to what this machine has seen it leave"
        if move.number < seen.number
        else f"{move.name} has another history than this machine has seen",
        facts=[
            f"now       move {move.number} -> {short_id(move.snapshot)}",
            f"seen      move {seen.number} -> {short_id(seen.snapshot)}",
            f"store     {url}",
            f"known by  {path}",
        ],
        hint="somebody took moves of the name away, or this is an older copy of the store; if that is as it should be: "
        f"`cachekeeper restore {shlex.quote(move.name)} --allow-older`",
    )
