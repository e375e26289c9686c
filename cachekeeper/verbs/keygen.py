"""Make a key that signs snapshots."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..keyfiles import default_key, write_key
from ..records import writer
from ..signing import new_private_key


@dataclass(frozen=True)
class KeygenResult:
    """A new key.

    Attributes:
        file: the private key, for its owner alone.
        public_file: the public key, for everybody who restores.
        key: its id, by which signatures name it.
        fingerprint: as `ssh-keygen -l` prints it.
        public_key: the line in `public_file`.
    """

    file: Path
    public_file: Path
    key: str
    fingerprint: str
    public_key: str


def keygen(file: str | os.PathLike[str] | None = None) -> KeygenResult:
    """Make an Ed25519 key in OpenSSH's format, without a passphrase. Nothing that is there is written over.

    Args:
        file: default: `signing_key` in this user's directory of settings.

    Raises:
        UsageError: there is a key already, or `cryptography` is not installed.
        LocalDiskError: it cannot be written.
    """
    path = default_key() if file is None else Path(file).expanduser()
    key = new_private_key(writer())
    public = write_key(path, key)
    return KeygenResult(path, public, key.public.id, key.public.fingerprint, key.public.line)
