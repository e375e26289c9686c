"""Who vouches for a snapshot: signatures in a store, each an object of its own beside what it is of.

Two things are signed: a snapshot, whose id is the hash of all that it holds, and a move of a name to it. Whoever can
write to the store can do without either, and then nothing is restored; they cannot make one.

What a machine saw a name point to last is remembered there, so that an older state of the store is noticed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from . import fitting, keyfiles, signing
from .config import cache_home, keep_in_cache, setting
from .disk import locked
from .errors import BadSignature, DamagedStore, LocalDiskError, Replayed, SwappedName, Unsigned, Untrusted, WrongKey
from .manifest import Header, Snapshot
from .models import Fingerprint
from .records import checked, with_checksum, writer
from .repository import Move, Repository, is_name, split_reference
from .signing import PrivateKey, PublicKey, short_key, statement
from .stores import KeyMissing, Store
from .units import FULL_ID, is_timestamp, now_utc, short_id

_SIGNATURE_BYTES = 64
# A name has at most some thousand characters; an object that is longer is none of ours, and is not read.
_LARGEST = 16 << 10


class Claim(NamedTuple):
    """What a signature is of: a snapshot, or the move of a name to it.

    Attributes:
        snapshot: full id.
        name, number: of the move; "" and 0 for the snapshot itself.
    """

    snapshot: str
    name: str = ""
    number: int = 0

    @property
    def document(self) -> dict[str, Any]:
        """What is signed, as JSON data."""
        return {"snapshot": self.snapshot} if not self.name else self._asdict()

    @property
    def statement(self) -> bytes:
        """What is signed, as bytes."""
        return statement("name" if self.name else "snapshot", self.document)

    @property
    def place(self) -> str:
        """Where its signatures lie in a store: the beginning of their keys."""
        if self.name:
            return f"signatures/names/{quote(self.name, safe='/')}/{self.number:08d}/"
        return f"signatures/{self.snapshot}/"

    def __str__(self) -> str:
        snapshot = f"snapshot {short_id(self.snapshot)}"
        return f"move {self.number} of {self.name} to {snapshot}" if self.name else snapshot


class Signature(NamedTuple):
    """A signature as its object in a store tells it; whether it is good, only a key can say.

    Attributes:
        key: id of the key that it is said to be by.
        claim: what it is said to be of.
        public_key: the key itself, as a line; for people.
        signature: its 64 bytes.
        when, who: of the signing, for people.
        damage: what is wrong with the object, of which nothing but `key` is known then.
    """

    key: str
    claim: Claim = Claim("")
    public_key: str = ""
    signature: bytes = b""
    when: str = ""
    who: str = ""
    damage: str = ""


# Looking


def found(repository: Repository, claim: Claim) -> list[Signature]:
    """The signatures of something; nothing is checked against a key."""
    return [_look(repository, claim, key, size) for key, size in _listed(repository.store, claim).items()]


def keys_of(repository: Repository, identifier: str) -> list[str]:
    """The keys of the objects in the store that sign a snapshot, for whoever takes the snapshot away."""
    return [key for key, *_ in repository.store.list(Claim(identifier).place)]


def listed(store: Store) -> dict[str, dict[str, int]]:
    """All signatures in a store, from one listing: `Claim.place` -> id of the key -> length of the object."""
    places: dict[str, dict[str, int]] = {}
    for key, size, _ in store.list("signatures/"):
        place, _, name = key.rpartition("/")
        if FULL_ID.fullmatch(name):
            places.setdefault(f"{place}/", {})[name] = size
    return places


def read(repository: Repository, claim: Claim, key: str, size: int) -> bytes:
    """The object by which a key signs something, so that another store can have it too.

    Raises:
        DamagedStore: it is none, or says that it is of something else.
        KeyMissing: it is not there.
    """
    if size > _LARGEST:
        raise DamagedStore(f"it has {size:,} bytes")

    def decoded(place: str) -> bytes:
        data = repository.store.read(place)
        told = _decode(key, data).claim
        if told != claim:
            raise DamagedStore(f"it is of {told}")
        return data

    return repository.twice(decoded, claim.place + key)


def claims_of(repository: Repository, reference: str) -> list[Claim]:
    """What stands behind a reference: a snapshot, and where that is a name, its move.

    Raises:
        NotFound: nothing.
        DamagedStore: the name points to nobody knows what.
    """
    move = _move_behind(repository, reference)
    if move is None:
        return [Claim(repository.resolve(reference))]
    return [Claim(move.snapshot), Claim(move.snapshot, split_reference(reference)[0], move.number)]


def _listed(store: Store, claim: Claim) -> dict[str, int]:
    """Id of each key that something is said to be signed by -> length of that object."""
    objects = ((key.removeprefix(claim.place), size) for key, size, _ in store.list(claim.place))
    return {key: size for key, size in objects if FULL_ID.fullmatch(key)}


def _look(repository: Repository, claim: Claim, key: str, size: int) -> Signature:
    if size > _LARGEST:
        return Signature(key, damage=f"it has {size:,} bytes")
    try:
        return repository.twice(lambda place: _decode(key, repository.store.read(place)), claim.place + key)
    except KeyMissing:
        return Signature(key, damage="it vanished meanwhile")
    except DamagedStore as error:
        return Signature(key, damage=error.message)


def _move_behind(repository: Repository, reference: str) -> Move | None:
    """The move that a name means; None for what is no name in this store."""
    name, back = split_reference(reference)
    moves = repository.history(name) if is_name(name) else []
    if not moves:
        return None
    move = moves[-1 - back] if back < len(moves) else None
    if move is None or not move.snapshot:
        repository.resolve(reference)  # says what is wrong
        raise DamagedStore(f"what {reference} points to changes", hint="try again")
    return move


# The object


def _encode(key: PrivateKey, claim: Claim) -> bytes:
    signature = base64.b64encode(key.sign(claim.statement)).decode()
    told = {"public_key": PublicKey(key.public.raw).line, "signature": signature, "when": now_utc(), "who": writer()}
    return with_checksum({**claim.document, **told})


def _decode(key: str, data: bytes) -> Signature:
    """A signature from its bytes; keys that a later version adds are passed over."""
    try:
        document = checked(data)
        signature = base64.b64decode(document["signature"], validate=True)
        claim = Claim(document["snapshot"], document.get("name", ""), document.get("number", 0))
        line, when, who = document["public_key"], document["when"], document["who"]
        right = signing.public_key(line).id == key and len(signature) == _SIGNATURE_BYTES
        right = right and bool(FULL_ID.fullmatch(claim.snapshot)) and isinstance(who, str) and is_timestamp(when)
        right = right and isinstance(claim.name, str) and type(claim.number) is int
    except (ValueError, KeyError, TypeError, AttributeError):
        right = False
    if not right:
        raise DamagedStore("its bytes are not those of a signature by this key")
    return Signature(key, claim, line, signature, when, who)


# Signing


def sign(repository: Repository, key: PrivateKey, claim: Claim) -> bool:
    """Sign something; False where this key has signed it already.

    What lies there and is no good signature is replaced: it vouches for nothing.
    """
    place = claim.place + key.public.id
    while not repository.store.create(place, _encode(key, claim)):
        size = _listed(repository.store, claim).get(key.public.id, 0)
        there = _look(repository, claim, key.public.id, size)
        if not there.damage and key.public.verifies(there.signature, claim.statement):
            return False
        repository.store.delete(place)
    return True


def sign_saved(repository: Repository, key: PrivateKey | None, identifier: str, name: str | None) -> str:
    """Sign a snapshot that was just saved, and the move of the name that points to it.

    Args:
        key: None signs nothing.
        name: "" or None where no name was moved.

    Returns:
        The id of the key, "" for none.
    """
    if key is None:
        return ""
    sign(repository, key, Claim(identifier))
    # Somebody else may have moved the name on in the meantime: theirs is not ours to sign.
    moves = [move for move in repository.history(name) if move.snapshot == identifier] if name else []
    for move in moves[-1:]:
        sign(repository, key, Claim(identifier, name or "", move.number))
    return key.public.id


def refuse_other_name(header: Header, claim: Claim) -> None:
    """Refuse a name that points to what was saved under another.

    Raises:
        SwappedName: it does.
    """
    if header.name != claim.name:
        raise SwappedName(
            f"{claim.name} points to a snapshot that was saved "
            + (f"as {header.name}" if header.name else "without a name"),
            facts=[f"move {claim.number} of {claim.name} -> {short_id(claim.snapshot)}"],
            hint="somebody changed the name in the store, or it was imported under another; if you know this snapshot, "
            "sign it and restore it by its id",
        )


# Requiring


@dataclass(frozen=True)
class Trust:
    """What must vouch for a snapshot.

    Attributes:
        keys: any of them will do.
        allow_older: a name may point to something older than what this machine has seen.
        remember: keep in mind what a name points to.
    """

    keys: tuple[PublicKey, ...]
    allow_older: bool = False
    remember: bool = True


class Chosen(NamedTuple):
    """A snapshot to restore.

    Attributes:
        snapshot: itself.
        signed_by: id of the key that vouches for it, "" where none was asked for.
        notes: what a person should know, a sentence each.
    """

    snapshot: Snapshot
    signed_by: str = ""
    notes: tuple[str, ...] = ()


def trust(flag: str | os.PathLike[str] | None, *, allow_older: bool = False, remember: bool = True) -> Trust | None:
    """The keys given or configured; None where nobody asks for signatures.

    Raises:
        UsageError: they cannot be read, or signatures cannot be checked here.
    """
    value = setting("require_signature", flag)
    if value is None:
        return None
    signing.require_library()
    return Trust(keyfiles.trusted_keys(value), allow_older, remember)


def choose(
    repository: Repository, reference: str, here: Fingerprint, proven: bool = False, trusted: Trust | None = None
) -> Chosen:
    """The snapshot behind a reference, as `fitting.choose` finds it, once a trusted key vouches for it.

    A name must point to it by a move that is signed too; "latest" is the newest of those that are signed.

    Raises:
        NotFound, Unproven, DamagedStore: as `fitting.choose` says.
        Unsigned, WrongKey, BadSignature, SwappedName, Replayed: nothing of it may be restored.
    """
    if trusted is None:
        return Chosen(fitting.choose(repository, reference, here, proven))
    if reference == "latest":
        return _latest(repository, here, proven, trusted)
    claims = claims_of(repository, reference)
    vouched, notes = _require(repository, claims, trusted, back=split_reference(reference)[1])
    return Chosen(fitting.choose(repository, claims[0].snapshot, here, proven), vouched.id, notes)


def require(repository: Repository, reference: str, trusted: Trust) -> tuple[str, PublicKey]:
    """The full id behind an id or a name that a trusted key vouches for, and that key.

    Raises:
        Unsigned, WrongKey, BadSignature, SwappedName, Replayed: none does.
    """
    claims = claims_of(repository, reference)
    return claims[0].snapshot, _require(repository, claims, trusted, back=split_reference(reference)[1])[0]


def identified(repository: Repository, reference: str, here: Callable[[], Fingerprint], trusted: Trust | None) -> str:
    """The full id behind a reference, as `fitting.identified` finds it; with `trusted`, once such a key vouches for it.

    Raises:
        NotFound: there is none.
        Unsigned, WrongKey, BadSignature, SwappedName, Replayed: none of the keys does.
    """
    if trusted is None:
        return fitting.identified(repository, reference, here)
    if reference == "latest":
        return choose(repository, reference, here(), trusted=trusted).snapshot.id
    return require(repository, reference, trusted)[0]


def _require(
    repository: Repository, claims: Sequence[Claim], trusted: Trust, back: int
) -> tuple[PublicKey, tuple[str, ...]]:
    """The key that vouches for a snapshot, as `claims_of` has it, and notes."""
    snapshot, *moves = claims
    for move in moves:
        try:
            _vouched(repository, move, trusted.keys)
        except Unsigned:
            with contextlib.suppress(DamagedStore, KeyMissing):
                refuse_other_name(repository.header(move.snapshot).header, move)  # which says more
            raise
    key = _vouched(repository, snapshot, trusted.keys)
    notes: tuple[str, ...] = ()
    for move in moves:
        refuse_other_name(repository.header(move.snapshot).header, move)
        if back == 0:
            notes = _refuse_older(repository.store.url, move, trusted)
    return key, notes


def _latest(repository: Repository, here: Fingerprint, proven: bool, trusted: Trust) -> Chosen:
    """The newest snapshot that fits this machine, of those that a trusted key vouches for."""
    ours = {key.id for key in trusted.keys}
    objects = (key.split("/") for key, *_ in repository.store.list("signatures/"))
    signed = {parts[1] for parts in objects if len(parts) == 3 and parts[2] in ours}
    listing = repository.snapshots()
    fitting_ones = [each for each in listing.snapshots if fitting.newest_fitting([each], here, proven)]
    refused = []
    for snapshot in fitting_ones:
        if snapshot.id in signed:
            try:
                return Chosen(snapshot, _vouched(repository, Claim(snapshot.id), trusted.keys).id)
            except Untrusted as error:
                refused.append(error.message)
    if not fitting_ones:
        fitting.choose(repository, "latest", here, proven)  # says what there is instead
    raise Unsigned(
        f"no snapshot in {repository.store.url} that fits this machine is signed by a trusted key",
        facts=[*_trusted_facts(trusted.keys), *refused[:10]],
        hint="sign one that you know with `cachekeeper sign ID`",
    )


class _Bad(NamedTuple):
    """A signature that is said to be by a trusted key, and is none of what it stands beside."""

    key: PublicKey
    reason: str
    other: Claim | None = None


def _vouched(repository: Repository, claim: Claim, keys: Sequence[PublicKey]) -> PublicKey:
    """The first of the keys that has signed something."""
    listed = _listed(repository.store, claim)
    bad: list[_Bad] = []
    for key in keys:
        if key.id in listed:
            there = _look(repository, claim, key.id, listed[key.id])
            if not there.damage and key.verifies(there.signature, claim.statement):
                return key
            bad.append(_Bad(key, *_what_is_wrong(there, key, claim)))
    if bad:
        raise _bad_signature(claim, bad)
    if listed:
        raise _wrong_key(repository, claim, listed, keys)
    raise Unsigned(
        f"nobody has signed {claim}",
        facts=[f"store    {repository.store.url}", *_trusted_facts(keys)],
        hint="if it was saved a moment ago, try again; if you know this snapshot: "
        f"`cachekeeper sign {claim.name or short_id(claim.snapshot)}` with the private key",
    )


def _what_is_wrong(there: Signature, key: PublicKey, claim: Claim) -> tuple[str, Claim | None]:
    if there.damage:
        return there.damage, None
    if there.claim != claim and key.verifies(there.signature, there.claim.statement):
        return f"it is of {there.claim}", there.claim
    return "its bytes do not verify", None


def _bad_signature(claim: Claim, bad: Sequence[_Bad]) -> Untrusted:
    facts = [f"by {short_key(each.key.id)}: {each.reason}" for each in bad]
    other = next((each.other for each in bad if each.other), None)
    hint = "somebody changed the store: restore by a full id that you know, and find out who can write to it"
    if not claim.name or other is None or not other.name:
        hint += f"; `cachekeeper sign {claim.name or short_id(claim.snapshot)}` with the private key replaces it"
        return BadSignature(f"the signature of {claim} is not good", facts=facts, hint=hint)
    if (other.name, other.snapshot) == (claim.name, claim.snapshot):
        return Replayed(f"the signature of {claim} is that of its move {other.number}", facts=facts, hint=hint)
    return SwappedName(f"{claim.name} points to what was signed otherwise", facts=[f"now: {claim}", *facts], hint=hint)


def _wrong_key(repository: Repository, claim: Claim, listed: Mapping[str, int], keys: Sequence[PublicKey]) -> WrongKey:
    shown = [_look(repository, claim, key, listed[key]) for key in sorted(listed)[:10]]
    return WrongKey(
        f"no trusted key has signed {claim}",
        facts=[f"signature by {short_key(each.key)}  {each.damage or each.who}" for each in shown]
        + _trusted_facts(keys),
        hint="if you trust one of these, add its public key to those that you require; a signature alone says nothing",
    )


def _trusted_facts(keys: Sequence[PublicKey]) -> list[str]:
    return [f"trusted  {key}" for key in keys[:10]]


# What this machine has seen


def _refuse_older(url: str, move: Claim, trusted: Trust) -> tuple[str, ...]:
    """Refuse what a name pointed to before; remember what it points to now.

    Raises:
        Replayed: this machine has seen a later move of the name, or another of the same number.
    """
    path = _memory(url, move.name, trusted.keys)
    with _alone(path.parent, trusted.remember):
        seen = None if trusted.allow_older else _seen(path, move)
        if seen and (move.number < seen.number or (move.number == seen.number and move.snapshot != seen.snapshot)):
            raise _replayed(url, move, seen, path)
        if not trusted.remember or seen == move:
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
        f"`cachekeeper restore {move.name} --allow-older`",
    )
