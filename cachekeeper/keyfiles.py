"""Where people keep their keys: private ones in files as `ssh-keygen -t ed25519` makes them, public ones in lines."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

from . import ownership
from .config import setting
from .disk import explained, write_all
from .errors import LocalDiskError, UnsafePath, UsageError
from .signing import KEY_TYPE, PrivateKey, PublicKey, cryptography, public_key, require_library

_LARGEST_FILE = 64 << 10
# The first word of a public key, of whichever type; no file of keys is called that.
_KEY_TEXT = re.compile(r"\s*(ssh|sk-ssh|ecdsa|sk-ecdsa)-[a-z0-9@.-]+\s+\S")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_KEYS = ownership.Kind("directory of trusted keys", "--require-signature", "who is trusted stands there")
_HINTS = {
    "signing key": "make one with `cachekeeper keygen`, or name yours; `--sign` takes the word behind it as the file",
    "public key": f"give a .pub file, a file with a key on each line, or the text `{KEY_TYPE} AAAA...`",
}


# Public keys


def trusted_keys(value: str | os.PathLike[str]) -> tuple[PublicKey, ...]:
    """The public keys that somebody trusts, at least one: given as text, or in a file with one on each line.

    Raises:
        UsageError: there is no such file, or a line of it is none; nothing is trusted then.
        UnsafePath: somebody who is not trusted could change the file.
    """
    text = os.fspath(value)
    if not text.strip():
        raise UsageError(
            "the key that must have signed is empty", hint="give a .pub file or the key itself; is a variable unset?"
        )
    where = "the key given"
    if not _KEY_TEXT.match(text):
        path = Path(text).expanduser()
        where, text = str(path), _read_public(path)
    if "PRIVATE KEY-----" in text:
        raise UsageError(f"{where} is a private key", hint="name the public one beside it, FILE.pub")
    keys = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                keys.append(public_key(line))
            except ValueError as error:
                hint = f"a line is as `{KEY_TYPE} AAAA... comment`; remove others, or keep them in another file"
                facts = [f"line {number}: {error}"]
                raise UsageError(f"{where} has a line that is no key", facts=facts, hint=hint) from None
    if not keys:
        raise UsageError(f"{where} holds no key", hint=f"a line is as `{KEY_TYPE} AAAA... comment`")
    return tuple(dict.fromkeys(keys))


def _read_public(path: Path) -> str:
    data, status = _read(path, "public key")
    others = ownership.foreign(ownership.trusted_owners(), status.st_uid)
    if others or status.st_mode & stat.S_IWOTH:
        raise UnsafePath(
            f"{'somebody else owns' if others else 'everybody may write'} the file of trusted keys {path}",
            facts=[f"owner uid {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"],
            hint="look at what it holds, and keep it in a file of yours or of root's; or give the key as text",
        )
    for directory in {path.absolute().parent, Path(os.path.realpath(path)).parent}:
        # As in /tmp, where nobody else can put another file in the place of ours.
        sticky = directory.stat().st_mode & stat.S_ISVTX
        ownership.check(directory.parent if sticky else directory, _KEYS)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no file of public keys: it is no text", hint=_HINTS["public key"]) from None


# Private keys


def default_key() -> Path:
    """Where this user's signing key is by default."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "cachekeeper" / "signing_key"


def chosen_private_key(flag: str | os.PathLike[str] | None) -> PrivateKey | None:
    """The key that signs: the file given or configured; None where nobody wants to sign.

    Args:
        flag: "" means the configured file, or the default one.
    """
    chosen = setting("signing_key", flag or None)
    if chosen is None and flag is None:
        return None
    return private_key(Path(chosen or default_key()).expanduser())


def private_key(path: Path) -> PrivateKey:
    """Read a private key; the passphrase of a protected one is asked for on the terminal.

    Raises:
        UsageError: there is none, it is of another type, or it is protected and there is no terminal.
        LocalDiskError: others may read it, or it is somebody else's.
    """
    require_library()
    data, status = _read(path, "signing key")
    if _KEY_TEXT.match(data.decode(errors="replace")):
        private = str(path).removesuffix(".pub")
        raise UsageError(f"{path} is a public key", hint=f"the private one signs: is it {private}?")
    _refuse_shared(path, status)
    key = _decoded(path, data)
    kind = cryptography("hazmat.primitives.asymmetric.ed25519").Ed25519PrivateKey
    if not isinstance(key, kind):
        name = type(key).__name__.strip("_").removesuffix("PrivateKey")
        raise UsageError(
            f"{path} is a key of another type: {name}", hint="Ed25519 keys sign: make one with `cachekeeper keygen`"
        )
    return PrivateKey(key, _comment_beside(path))


def write_key(path: Path, key: PrivateKey) -> Path:
    """Write a key, for its owner alone, and its public one beside it; what is there is never written over.

    Returns:
        The file of the public key.

    Raises:
        UsageError: one of the files is there.
        LocalDiskError: they cannot be written.
    """
    public = path.with_name(f"{path.name}.pub")
    for file in (path, public):
        if os.path.lexists(file):
            raise UsageError(
                f"{file} is there already, and a key is never written over",
                hint="use it with `cachekeeper sign --key FILE`, or give another file: `cachekeeper keygen FILE`",
            )
    with explained(path, "write the signing key"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_new(path, key.text(), 0o600)
        _write_new(public, f"{key.public.line}\n".encode(), 0o644)
    return public


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a file whole or not at all, where there is none."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.link(temporary, path)
    finally:
        temporary.unlink()


def _refuse_shared(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise LocalDiskError(
            f"the signing key {path} is somebody else's",
            facts=[f"owner uid {status.st_uid}, this process is uid {os.geteuid()}"],
            hint="sign as its owner, or make a key of your own with `cachekeeper keygen`",
        )
    if status.st_mode & _OTHERS:
        raise LocalDiskError(
            f"others may read or write the signing key {path}",
            facts=[f"mode {stat.S_IMODE(status.st_mode):04o}"],
            hint=f"`chmod 600 {shlex.quote(str(path))}`; where somebody may have read it, make another "
            "with `cachekeeper keygen`",
        )


def _decoded(path: Path, data: bytes) -> Any:
    load = cryptography("hazmat.primitives.serialization").load_ssh_private_key
    unsupported = cryptography("exceptions").UnsupportedAlgorithm
    protected = False
    try:
        try:
            return load(data, None)
        except TypeError:
            protected = True
            return load(data, _passphrase(path))
    except unsupported as error:
        hint = "`pip install bcrypt` reads keys with a passphrase" if "bcrypt" in str(error) else ""
        raise UsageError(f"cannot read the signing key {path}", facts=[str(error)], hint=hint) from None
    except ValueError as error:
        what = "the passphrase is wrong, or the key is damaged" if protected else "it is no OpenSSH private key"
        raise UsageError(
            f"cannot read the signing key {path}: {what}",
            facts=[str(error)],
            hint="a key is as `cachekeeper keygen` or `ssh-keygen -t ed25519` makes it",
        ) from None


def _passphrase(path: Path) -> bytes:
    import getpass

    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            f"the signing key {path} has a passphrase, and there is no terminal to ask for it on",
            hint="sign from a terminal, or with a key without one that only this account can read",
        )
    return getpass.getpass(f"Passphrase of {path}: ").encode()


def _comment_beside(path: Path) -> str:
    """What the public key's file says behind the key; it is for people only."""
    try:
        return public_key(path.with_name(f"{path.name}.pub").read_text()).comment
    except (OSError, ValueError):
        return ""


def _meant(path: Path) -> str:
    """A hint at the key of that name where `keygen` writes them; "" for none."""
    there = default_key().with_name(path.name)
    return f"do you mean {there}?" if len(path.parts) == 1 and there.is_file() else ""


def _read(path: Path, what: str) -> tuple[bytes, os.stat_result]:
    """A small file and what it is."""
    with explained(path, f"read the {what}"):
        try:
            # A pipe of that name must not make anybody wait.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(f"there is no {what} {path}", hint=_meant(path) or _HINTS[what]) from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{path} is no file, and no {what}", hint=_HINTS[what])
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(_LARGEST_FILE + 1)
        finally:
            os.close(descriptor)
    if len(data) > _LARGEST_FILE:
        facts = [f"more than {_LARGEST_FILE:,} bytes"]
        raise UsageError(f"{path} is too long for a {what}", facts=facts, hint=_HINTS[what])
    return data, status
