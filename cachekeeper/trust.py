"""What must vouch for a snapshot before anything of it is restored: a signature by a key that somebody trusts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from . import fitting, keyfiles, rollback, signing
from .config import setting
from .errors import BadSignature, DamagedStore, Replayed, SwappedName, Unsigned, Untrusted, WrongKey
from .manifest import Header, Snapshot
from .models import Fingerprint
from .repository import Repository, split_reference
from .signatures import Claim, Signature, claims_of, listed, listed_of, look
from .signing import PublicKey, short_key
from .stores import KeyMissing
from .units import short_id


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


def required(flag: str | os.PathLike[str] | None, *, allow_older: bool = False, remember: bool = True) -> Trust | None:
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
    repository: Repository,
    reference: str,
    here: Fingerprint,
    proven: bool = False,
    trusted: Trust | None = None,
    without: Collection[str] = (),
) -> Chosen:
    """The snapshot behind a reference, as `fitting.choose` finds it, once a trusted key vouches for it.

    A name must point to it by a move that is signed too; "latest" is the newest of those that are signed.

    Raises:
        NotFound, Unproven, DamagedStore: as `fitting.choose` says.
        Unsigned, WrongKey, BadSignature, SwappedName, Replayed: nothing of it may be restored.
    """
    if reference == "latest":
        return _latest(repository, here, proven, trusted, without)
    if trusted is None:
        return Chosen(fitting.choose(repository, reference, here, proven))
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
            notes = rollback.refuse_older(
                repository.store.url, move, trusted.keys, allow_older=trusted.allow_older, remember=trusted.remember
            )
    return key, notes


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


def _latest(
    repository: Repository, here: Fingerprint, proven: bool, trusted: Trust | None, without: Collection[str]
) -> Chosen:
    """The newest snapshot that fits this machine, of those that a trusted key vouches for."""
    if trusted is None:
        snapshot, notes = fitting.latest(repository, here, proven, without)
        return Chosen(snapshot, notes=notes)
    ours = {key.id for key in trusted.keys}
    signed = listed(repository.store)
    snapshots = [each for each in repository.snapshots().snapshots if each.id not in without]
    fitting_ones = list(fitting.by_preference(repository, snapshots, here, proven))
    refused = []
    for snapshot in fitting_ones:
        if ours & signed.get(Claim(snapshot.id).place, {}).keys():
            try:
                vouched = _vouched(repository, Claim(snapshot.id), trusted.keys)
                notes = fitting.passed_over(repository, snapshots, snapshot, here, proven)
                return Chosen(snapshot, vouched.id, notes)
            except Untrusted as error:
                refused.append(error.message)
    if not fitting_ones:
        fitting.choose(repository, "latest", here, proven, without)  # says what there is instead
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
    listed = listed_of(repository.store, claim)
    bad: list[_Bad] = []
    for key in keys:
        if key.id in listed:
            there = look(repository, claim, key.id, listed[key.id])
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
    shown = [look(repository, claim, key, listed[key]) for key in sorted(listed)[:10]]
    return WrongKey(
        f"no trusted key has signed {claim}",
        facts=[f"signature by {short_key(each.key)}  {each.damage or each.who}" for each in shown]
        + _trusted_facts(keys),
        hint="if you trust one of these, add its public key to those that you require; a signature alone says nothing",
    )


def _trusted_facts(keys: Sequence[PublicKey]) -> list[str]:
    return [f"trusted  {key}" for key in keys[:10]]
