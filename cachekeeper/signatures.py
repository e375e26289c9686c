"""Signatures in a store: each an object of its own beside what it is of.

Two things are signed: a snapshot, whose id is the hash of all that it holds, and a move of a name to it. Whoever can
write to the store can take signatures away, and then nothing is restored (see `trust`); they cannot make one.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple
from urllib.parse import quote

from . import signing
from .errors import DamagedStore
from .records import checked, with_checksum, writer
from .repository import Move, Repository, is_name, split_reference
from .signing import PrivateKey, PublicKey, statement
from .stores import KeyMissing, Store
from .units import FULL_ID, is_timestamp, now_utc, short_id

PLACE = "signatures/"
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
            return f"{PLACE}names/{quote(self.name, safe='/')}/{self.number:08d}/"
        return f"{PLACE}{self.snapshot}/"

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
    return [look(repository, claim, key, size) for key, size in listed_of(repository.store, claim).items()]


def keys_of(repository: Repository, identifier: str) -> list[str]:
    """The keys of the objects in the store that sign a snapshot, for whoever takes the snapshot away."""
    return [key for key, *_ in repository.store.list(Claim(identifier).place)]


def listed(store: Store, below: str = PLACE) -> dict[str, dict[str, int]]:
    """Signatures in a store, from one listing: `Claim.place` -> id of the key -> length of the object."""
    places: dict[str, dict[str, int]] = {}
    for key, size, _ in store.list(below):
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

    return repository.store.twice(decoded, claim.place + key)


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


def listed_of(store: Store, claim: Claim) -> dict[str, int]:
    """Id of each key that something is said to be signed by -> length of that object."""
    return listed(store, claim.place).get(claim.place, {})


def look(repository: Repository, claim: Claim, key: str, size: int) -> Signature:
    """The signature of something by a key, as an object of that length tells it; not checked against the key."""
    if size > _LARGEST:
        return Signature(key, damage=f"it has {size:,} bytes")
    try:
        return repository.store.twice(lambda place: _decode(key, repository.store.read(place)), claim.place + key)
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
        size = listed_of(repository.store, claim).get(key.public.id, 0)
        there = look(repository, claim, key.public.id, size)
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
