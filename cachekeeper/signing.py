"""Ed25519 keys, and what they sign. A public key is a line, as in OpenSSH's `.pub` files."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import UsageError

KEY_TYPE = "ssh-ed25519"
# Digits of a key's id that a person compares.
SHORT_KEY = 16
_RAW_BYTES = 32


@dataclass(frozen=True)
class PublicKey:
    """A public key.

    Attributes:
        raw: its 32 bytes.
        comment: what stands behind it on its line, for people.
    """

    raw: bytes
    comment: str = field(default="", compare=False)

    @property
    def id(self) -> str:
        """The SHA-256 of the 32 bytes."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        digest = hashlib.sha256(_wire(self.raw)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def line(self) -> str:
        """As in a `.pub` file."""
        return " ".join(filter(None, (KEY_TYPE, base64.b64encode(_wire(self.raw)).decode(), self.comment)))

    def __str__(self) -> str:
        return f"{short_key(self.id)}  {self.fingerprint}" + (f"  {self.comment}" if self.comment else "")

    def verifies(self, signature: bytes, statement: bytes) -> bool:
        """True where the holder of the private key signed exactly this statement.

        Raises:
            UsageError: nothing here can tell.
        """
        kind = cryptography("hazmat.primitives.asymmetric.ed25519").Ed25519PublicKey
        try:
            kind.from_public_bytes(self.raw).verify(signature, statement)
        except (cryptography("exceptions").InvalidSignature, ValueError):
            return False
        return True


class PrivateKey:
    """A private key that may sign."""

    def __init__(self, key: Any, comment: str = "") -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw(), comment)

    def sign(self, statement: bytes) -> bytes:
        """The signature of a statement."""
        signature = self._key.sign(statement)
        assert isinstance(signature, bytes)
        return signature

    def text(self) -> bytes:
        """The key as a file holds it, without a passphrase."""
        forms = cryptography("hazmat.primitives.serialization")
        text = self._key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption())
        assert isinstance(text, bytes)
        return text


def new_private_key(comment: str = "") -> PrivateKey:
    """A new key, in memory only."""
    return PrivateKey(cryptography("hazmat.primitives.asymmetric.ed25519").Ed25519PrivateKey.generate(), comment)


def short_key(identifier: str) -> str:
    """The first digits of a key's id, enough for a person."""
    return identifier[:SHORT_KEY]


def statement(kind: str, document: Mapping[str, Any]) -> bytes:
    """The bytes that are signed: what they are about, and JSON with sorted keys and no white space.

    The first line keeps a signature from meaning something elsewhere, for a key that is used for more than this.
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f"cachekeeper signature 1: {kind}\n{text}".encode()


def public_key(line: str) -> PublicKey:
    """The key on a line as of a `.pub` file.

    Raises:
        ValueError: it is none, and why.
    """
    words = line.split(None, 2)
    if len(words) < 2 or words[0] != KEY_TYPE:
        shown = words[0][:40] if words else ""
        raise ValueError(f"it begins with {shown!r}, and only {KEY_TYPE} keys are read, without options")
    try:
        wire = base64.b64decode(words[1], validate=True)
    except ValueError:
        raise ValueError("what stands behind the type is no base64") from None
    raw = wire[-_RAW_BYTES:]
    if wire != _wire(raw) or len(raw) != _RAW_BYTES:
        raise ValueError("its bytes are no Ed25519 key; is it cut?")
    return PublicKey(raw, words[2].strip() if len(words) > 2 else "")


def _wire(raw: bytes) -> bytes:
    """The bytes of a public key as SSH has them: two strings, each behind its length."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in (KEY_TYPE.encode(), raw))


# The library


def require_library() -> None:
    """Refuse where signatures cannot be computed.

    Raises:
        UsageError: what to install.
    """
    cryptography("exceptions")


def cryptography(module: str) -> Any:
    """A module of the library that computes signatures.

    Raises:
        UsageError: it is not installed; nothing is signed, and nothing passes for signed.
    """
    from importlib import import_module

    try:
        return import_module(f"cryptography.{module}")
    except ImportError as error:
        raise UsageError(
            "signatures need the package `cryptography`",
            facts=[str(error)],
            hint="install it beside cachekeeper: `pip install 'cachekeeper[sign]'`",
        ) from None
