"""Where torch and Triton keep their caches, by their own rules."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CacheDirectory:
    """The directory that Inductor would use.

    Attributes:
        path: absolute. It need not exist.
        source: what decided, as "TORCHINDUCTOR_CACHE_DIR" or "default (TMPDIR)".
        notes: what a person should know, as that a relative value was made absolute.
    """

    path: Path
    source: str
    notes: tuple[str, ...] = ()


def cache_directory(environ: Mapping[str, str] | None = None) -> CacheDirectory:
    """The directory that torch would use in this environment (torch/_inductor/runtime/cache_dir_utils.py).

    Without TORCHINDUCTOR_CACHE_DIR it is `torchinductor_<user>` in the first temporary directory that a file can
    be written to; as `tempfile` does, that is found out by writing one and removing it.

    Raises:
        OSError: no temporary directory can be written to; torch could not start either.
    """
    environ = os.environ if environ is None else environ
    value = environ.get("TORCHINDUCTOR_CACHE_DIR")
    if value is None:
        temporary, source, notes = _temporary_directory(environ)
        name = re.sub(r'[\\/:*?"<>|]', "_", user_name(environ))
        return CacheDirectory(Path(temporary, f"torchinductor_{name}"), f"default ({source})", notes)
    return CacheDirectory(Path(_absolute(value)), "TORCHINDUCTOR_CACHE_DIR", _value_notes(value))


def triton_directory(environ: Mapping[str, str] | None = None) -> Path | None:
    """TRITON_CACHE_DIR, absolute; None where it is not set: Triton's files are then in the cache directory."""
    environ = os.environ if environ is None else environ
    value = environ.get("TRITON_CACHE_DIR", "").strip()
    return Path(_absolute(value)) if value else None


def triton_home_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Where kernels go that run before Inductor sets TRITON_CACHE_DIR: .triton/cache in $TRITON_HOME or ~."""
    environ = os.environ if environ is None else environ
    home = environ.get("TRITON_HOME")
    if home is None:
        home = _home(environ)
    return Path(_absolute(os.path.join(home, ".triton", "cache")))


def _absolute(value: str) -> str:
    # Not Path.resolve(): torch keeps symbolic links, and the text of this path is what jobs are given.
    return os.path.abspath(value)


def _value_notes(value: str) -> tuple[str, ...]:
    if not value:
        return ("TORCHINDUCTOR_CACHE_DIR is empty: torch takes the directory that the job starts in",)
    notes = []
    if not os.path.isabs(value):
        notes.append(f"{value!r} is relative: it depends on the directory that the job starts in")
    if value.startswith("~"):
        notes.append("torch does not expand ~: this is a directory of that name")
    return tuple(notes)


def _temporary_directory(environ: Mapping[str, str]) -> tuple[str, str, tuple[str, ...]]:
    notes: list[str] = []
    for directory, source in _temporary_candidates(environ):
        if _writable(directory):
            return directory, source, tuple(notes)
        if source in environ:
            notes.append(f"{source}={environ[source]} cannot be written to, so it is not used")
    raise FileNotFoundError("no temporary directory can be written to")


def _temporary_candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in ("TMPDIR", "TEMP", "TMP"):
        if environ.get(name):
            yield _absolute(environ[name]), name
    for directory in ("/tmp", "/var/tmp", "/usr/tmp"):
        yield directory, directory
    yield os.getcwd(), "current directory"


def _writable(directory: str) -> bool:
    name = os.path.join(directory, f".cachekeeper-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    try:
        # A full disk lets files be made but not filled, and then `tempfile` moves on.
        os.write(handle, b"blat")
    except OSError:
        return False
    finally:
        os.close(handle)
        os.unlink(name)
    return True


def user_name(environ: Mapping[str, str]) -> str:
    """As `getpass.getuser()`; "uid_<n>" for a user without a name, as torch has it."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        if environ.get(name):
            return environ[name]
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except (KeyError, OSError):
        return f"uid_{os.getuid()}"


def _home(environ: Mapping[str, str]) -> str:
    if "HOME" in environ:
        return environ["HOME"].rstrip("/") or "/"
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except (KeyError, OSError):
        return "~"
