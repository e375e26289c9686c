"""What can go wrong, as exceptions that a person and a program can both read.

    CachekeeperError            1   unexpected
    ├── UnsupportedSystem       1   this is not Linux
    ├── UsageError              2   the command line, a setting or an argument makes no sense
    ├── CheckFailed             3   the check ran and the answer is no
    │   ├── DamagedCache            a live cache directory is structurally damaged
    │   ├── DamagedStore            a store's bytes are not what they were
    │   ├── Unproven                a snapshot without the certificate that was asked for
    │   ├── Pinned                  a snapshot that must not go away
    │   ├── SecretsFound            what was to be saved holds what looks like secrets
    │   └── Untrusted               nobody who is trusted vouches for a snapshot
    │       ├── Unsigned            it has no signature
    │       ├── WrongKey            none of its signatures is by a key that is trusted
    │       ├── BadSignature        a signature is not of what it stands beside
    │       ├── SwappedName         a name points to a snapshot that was signed under another
    │       └── Replayed            a name points to what it pointed to before
    ├── EnvironmentMismatch     4   a snapshot was made on another environment
    ├── NotFound                5   no such snapshot, name, store, cache, run, metric, file or device
    │   └── EmptyCache              a cache directory without a single entry
    ├── StoreError              6   a store cannot be reached, read or written
    │   ├── NoCredentials           there are none, or they cannot be loaded
    │   ├── CredentialsExpired      they were good once
    │   ├── BadCredentials          the server does not know the key, or the secret is another
    │   ├── AccessDenied            good credentials that may not do this
    │   ├── NoSuchBucket            the server has none of that name
    │   ├── WrongRegion             the bucket is in another region
    │   ├── ClockSkew               this machine's clock is too far from the server's
    │   ├── Unreachable             no answer, or none but failures, after every retry
    │   ├── ForeignServer           what answers there does not speak S3
    │   ├── TlsFailed               no trusted connection
    │   ├── FromLaterVersion        a later cachekeeper wrote it
    │   └── ReadOnly                it was opened read-only
    ├── Busy                    7   somebody else is using the directory
    └── LocalDiskError          8   space, permission or mount options of this machine
        └── UnsafePath              somebody else could change what lies there

Every error has a kebab-case `code` for programs, an `exit_code`, the `facts` that led to it, one a line, and
a `hint` that says what to do next. Only `cachekeeper.cli.main` turns one into words.
"""

from __future__ import annotations

from collections.abc import Iterable


class CachekeeperError(Exception):
    """Base of every error that cachekeeper raises on purpose."""

    code = "unexpected"
    exit_code = 1

    def __init__(self, message: str, *, facts: Iterable[str] = (), hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.facts = tuple(facts)
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message, *(f"  {fact}" for fact in self.facts)]
        return "\n".join([*lines, f"hint: {self.hint}"] if self.hint else lines)


class UnsupportedSystem(CachekeeperError):
    """This is Windows, macOS or another system that is not Linux."""

    code = "unsupported-system"


class UsageError(CachekeeperError):
    """The command line, a setting or an argument makes no sense."""

    code = "usage"
    exit_code = 2


class CheckFailed(CachekeeperError):
    """The check ran to its end and the answer is no."""

    code = "check-failed"
    exit_code = 3


class DamagedCache(CheckFailed):
    """A live cache directory holds entries that torch would load broken."""

    code = "damaged-cache"


class DamagedStore(CheckFailed):
    """Bytes in a store are not what they were when they were written, or were never sane."""

    code = "damaged-store"


class Unproven(CheckFailed):
    """A snapshot without the certificate that was asked for."""

    code = "unproven"


class Pinned(CheckFailed):
    """A snapshot that must not go away, and was to be taken away."""

    code = "pinned"


class SecretsFound(CheckFailed):
    """What was to be saved holds what looks like secrets."""

    code = "secrets-found"


class Untrusted(CheckFailed):
    """Nobody who is trusted vouches for a snapshot."""

    code = "untrusted"


class Unsigned(Untrusted):
    """A snapshot, or the move of a name to it, without a signature."""

    code = "unsigned"


class WrongKey(Untrusted):
    """Signatures, and none by a key that is trusted."""

    code = "wrong-key"


class BadSignature(Untrusted):
    """A signature that is not of what it stands beside."""

    code = "bad-signature"


class SwappedName(Untrusted):
    """A name that points to a snapshot which was signed under another."""

    code = "swapped-name"


class Replayed(Untrusted):
    """A name that points to what it pointed to before, and had left."""

    code = "replayed"


class EnvironmentMismatch(CachekeeperError):
    """A snapshot was made on an environment that this machine does not match."""

    code = "environment-mismatch"
    exit_code = 4


class NotFound(CachekeeperError):
    """No such snapshot, name, store, directory, run, metric, file, function or device; or there is none yet."""

    code = "not-found"
    exit_code = 5


class EmptyCache(NotFound):
    """A cache directory that holds no entry at all."""

    code = "empty-cache"


class StoreError(CachekeeperError):
    """A store cannot be reached, read or written."""

    code = "store"
    exit_code = 6


class NoCredentials(StoreError):
    """There are no credentials, or they cannot be loaded."""

    code = "no-credentials"


class CredentialsExpired(StoreError):
    """Credentials that were good once."""

    code = "credentials-expired"


class BadCredentials(StoreError):
    """The server does not know the key, or the secret is another."""

    code = "bad-credentials"


class AccessDenied(StoreError):
    """Good credentials that may not do this."""

    code = "access-denied"


class NoSuchBucket(StoreError):
    """The server has no such bucket."""

    code = "no-such-bucket"


class WrongRegion(StoreError):
    """The bucket is in another region."""

    code = "wrong-region"


class ClockSkew(StoreError):
    """This machine's clock differs from the server's by more than it allows."""

    code = "clock-skew"


class Unreachable(StoreError):
    """No answer, or none but failures, after every retry."""

    code = "unreachable"


class ForeignServer(StoreError):
    """Something answers, and it does not speak S3."""

    code = "foreign-server"


class TlsFailed(StoreError):
    """No trusted connection."""

    code = "tls"


class FromLaterVersion(StoreError):
    """A later version of cachekeeper wrote it, in a form that this one does not read."""

    code = "from-later-version"


class ReadOnly(StoreError):
    """Something would have written to a store that was opened read-only."""

    code = "read-only"


class Busy(CachekeeperError):
    """Somebody else is using the directory right now."""

    code = "busy"
    exit_code = 7


class LocalDiskError(CachekeeperError):
    """This machine's disk says no: space, permission or mount options."""

    code = "local-disk"
    exit_code = 8


class UnsafePath(LocalDiskError):
    """A directory that somebody else owns or may change, or a link of theirs on the way to it."""

    code = "unsafe-path"
