"""Sign snapshots that are in a store already, and the names that point to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from .. import signatures, trust
from ..errors import UsageError
from ..keyfiles import chosen_private_key
from ..repository import open_repository
from ..signatures import Claim
from ..stores import Store


@dataclass(frozen=True)
class SignResult:
    """What is signed now.

    Attributes:
        store: URL of the store.
        key: id of the key that signed.
        fingerprint: the key as `ssh-keygen -l` prints it.
        signed: snapshots, and moves of names to them, in the order asked for.
        already: those of them that the key had signed before.
    """

    store: str
    key: str
    fingerprint: str
    signed: tuple[Claim, ...]
    already: tuple[Claim, ...]


def sign(
    references: str | Sequence[str],
    *,
    key: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | Store | None = None,
) -> SignResult:
    """Sign snapshots; of a name, the snapshot that it points to and that it points there.

    That each manifest is what its id says is looked at first. Whether it is the snapshot that you mean, only you know:
    sign by an id that you saw where it was made, where others can write to the store.

    Args:
        references: one or several of id, name or `name@{1}`.
        key: file of the private key; default as configured, else `signing_key` in this user's directory of settings.

    Raises:
        UsageError: there is no such key, or it cannot sign; `cryptography` is not installed.
        NotFound: no such snapshot.
        DamagedStore: a manifest is not what its id says.
        SwappedName: a name points to what was saved under another. In all these cases nothing is signed.
        StoreError: the store cannot be written. Signing again finishes what was begun.
    """
    references = [references] if isinstance(references, str) else references
    if not references:
        raise UsageError("nothing to sign", hint="name a snapshot: `cachekeeper sign ID|NAME`")
    private = chosen_private_key(key or "")
    assert private is not None
    repository = open_repository(store)
    repository.require()
    claims: dict[Claim, None] = {}
    for reference in references:
        for claim in signatures.claims_of(repository, reference):
            manifest = repository.manifest(claim.snapshot)
            if claim.name:
                trust.refuse_other_name(manifest.header, claim)
            claims[claim] = None
    already = tuple(claim for claim in claims if not signatures.sign(repository, private, claim))
    return SignResult(repository.store.url, private.public.id, private.public.fingerprint, tuple(claims), already)
