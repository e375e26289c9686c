"""Settings: flag > `CACHEKEEPER_*` > `cachekeeper.toml` or `[tool.cachekeeper]` of pyproject.toml > default."""

from __future__ import annotations

import contextlib
import difflib
import os
import secrets
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .errors import UsageError
from .variables import OF_A_RUN


class Setting(NamedTuple):
    """A setting: how its text is read, what it is for, and whether a file may have it."""

    read: Callable[[object], Any]
    help: str
    in_file: bool = True

    def value(self, raw: object, where: str) -> Any:
        """The value of what a file or the environment says.

        Raises:
            UsageError: it makes no sense; `where` says which.
        """
        try:
            return self.read(raw)
        except ValueError:
            raise UsageError(f"{where} makes no sense: {raw!r}", facts=[self.help]) from None


def _text(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError(raw)
    return raw


def _seconds(raw: object) -> float:
    value = float(str(raw))
    if not 0 <= value < 1e6:
        raise ValueError(raw)
    return value


def _yes_or_no(raw: object) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if str(raw).lower() not in words:
        raise ValueError(raw)
    return words[str(raw).lower()]


SETTINGS: Mapping[str, Setting] = {
    "store": Setting(_text, "where snapshots are kept: a directory, file:// or s3:// URL"),
    "s3_endpoint": Setting(_text, "the URL of the server of s3:// stores, where it is not the AWS configuration's"),
    "local_cache": Setting(_text, "a directory of this machine that keeps what was read from an s3:// store"),
    "read_only": Setting(_yes_or_no, "1 or 0; 1: never write to a store"),
    "s3_timeout": Setting(_seconds, "seconds that an S3 server may say nothing, in each of 5 tries; default 30"),
    "cache_dir": Setting(_text, "the cache directory, where it is not the one that torch would use"),
    "name": Setting(_text, "the name of the snapshot, where none is given"),
    "model_config": Setting(_text, "a model's config file, hashed into the fingerprint"),
    "model_sources": Setting(_text, "source files or directories that belong to the model, with colons between"),
    "wait": Setting(_seconds, "seconds to wait at most until nothing writes into the cache"),
    "signing_key": Setting(_text, "the file of the private key that signs new snapshots"),
    "require_signature": Setting(_text, "a public key, or a file of them: restore only what one of these has signed"),
    "trusted_owners": Setting(_text, "users beside root and this one whose directories are trusted: names or uids"),
    # A job's own processes look at these; they read no file.
    "runs": Setting(_text, "the directory that keeps what jobs told of their compiles; a variable only", False),
    "telemetry": Setting(_yes_or_no, "1 or 0; 0: jobs tell nothing of their compiles; a variable only", False),
}


# A table of the file that is no setting: the plans of warmups.
WARMUPS = "warmup"


def setting(key: str, flag: object = None) -> Any:
    """The value of a setting, or None where nobody set it.

    Args:
        key: one of SETTINGS.
        flag: what the command line or the caller says; it wins unless it is None.

    Raises:
        UsageError: a file or a variable makes no sense.
    """
    if flag is not None:
        return flag
    variable = f"CACHEKEEPER_{key.upper()}"
    if os.environ.get(variable):
        return SETTINGS[key].value(os.environ[variable], variable)
    path, values = _from_file(_working_directory())
    return SETTINGS[key].value(values[key], f"{key} in {path}") if key in values else None


def model_files(
    config: str | os.PathLike[str] | None = None, sources: Sequence[str | os.PathLike[str]] = ()
) -> dict[str, Any]:
    """The files that say which model it is, as arguments for `fingerprint`: those given, else as configured."""
    config = setting("model_config", config)
    if not sources:
        sources = [path for path in (setting("model_sources") or "").split(os.pathsep) if path]
    return {"model_config": Path(config) if config else None, "model_sources": [Path(path) for path in sources]}


def warmups() -> Mapping[str, Mapping[str, object]]:
    """The plans of warmups that the file of settings declares: target -> its table.

    A relative file in a target means the directory of the settings' own file.

    Raises:
        UsageError: the file makes no sense.
    """
    path, values = _from_file(_working_directory())
    declared = values.get(WARMUPS, {})
    if not isinstance(declared, dict) or not all(isinstance(table, dict) for table in declared.values()):
        raise UsageError(
            f"{WARMUPS} in {path} is no table of tables",
            hint='write `[warmup."train.py:step"]`, and below it `modes = ["train"]` and the like',
        )
    return {_beside(path, target): table for target, table in declared.items()}


def _beside(path: Path, target: str) -> str:
    place, colon, name = target.rpartition(":")
    return str(path.parent / place) + colon + name if place.endswith(".py") else target


def store_url(flag: str | os.PathLike[str] | None = None) -> str:
    """The store to use: by default a directory of this user that no clean-up of caches takes away."""
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    chosen = setting("store", flag)
    return f"{home}/cachekeeper" if chosen is None else os.fspath(chosen)


def cache_home() -> Path:
    """Where cachekeeper keeps what it can do without, of this user and machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "cachekeeper"


def keep_in_cache(path: Path, data: bytes) -> None:
    """Write a file below `cache_home`, whole or not at all, the owner's alone; a failure is no matter."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        cache_home().mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        temporary.replace(path)


def unknown_variables() -> list[str]:
    """Variables that look like settings and are none."""
    known = {f"CACHEKEEPER_{key.upper()}" for key in SETTINGS} | set(OF_A_RUN)
    return sorted(name for name in os.environ if name.startswith("CACHEKEEPER_") and name not in known)


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return Path("/")


def _from_file(start: Path) -> tuple[Path, Mapping[str, object]]:
    for directory in (start, *start.parents):
        own, project = directory / "cachekeeper.toml", directory / "pyproject.toml"
        if _readable(own):
            _refuse_foreign(own)
            return own, _checked(own, _load(own))
        if _readable(project) and (table := _tool_table(_load(project))):
            _refuse_foreign(project)
            return project, _checked(project, table)
    return start, {}


def _tool_table(document: Mapping[str, Any]) -> dict[str, Any]:
    tools = document.get("tool")
    table = tools.get("cachekeeper") if isinstance(tools, dict) else None
    return table if isinstance(table, dict) else {}


def _readable(path: Path) -> bool:
    return os.access(path, os.R_OK) and path.is_file()


def _refuse_foreign(path: Path) -> None:
    """Refuse settings that somebody else wrote: they say what is restored, and who is trusted."""
    info = path.stat()
    trusted = {part.strip() for part in os.environ.get("CACHEKEEPER_TRUSTED_OWNERS", "").split(",")}
    ours = info.st_uid in (0, os.geteuid()) and not info.st_mode & stat.S_IWOTH
    if not ours and not trusted & {"*", str(info.st_uid), _user(info.st_uid)}:
        raise UsageError(
            f"the settings {path} are not this user's",
            facts=[f"owner  uid {info.st_uid}, mode {info.st_mode & 0o7777:04o}; this process is uid {os.geteuid()}"],
            hint="whoever can change them chooses what torch runs: `chown` or `chmod o-w` them, work in another "
            f"directory, or set CACHEKEEPER_TRUSTED_OWNERS={info.st_uid} if you know whose they are",
        )


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _load(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with open(path, "rb") as file:
            document: dict[str, Any] = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}", facts=[str(error)]) from None
    return document


def _checked(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    for key in values:
        if key not in SETTINGS and key != WARMUPS:
            close = difflib.get_close_matches(key, SETTINGS, n=1)
            hint = f"did you mean `{close[0]}`?" if close else "known settings: " + ", ".join(SETTINGS)
            raise UsageError(f"{path} has no setting {key!r}", hint=hint)
        if key != WARMUPS and not SETTINGS[key].in_file:
            raise UsageError(f"{key} in {path}: it is a variable only", hint=f"set CACHEKEEPER_{key.upper()}")
    # A relative path in a file means the file's own directory, wherever the command is started.
    for key in ("store", "local_cache", "cache_dir", "model_config", "signing_key", "require_signature"):
        value = values.get(key)
        # An empty one stays empty, and is refused; a key itself is no path.
        if isinstance(value, str) and value and "://" not in value and not value.startswith("ssh-"):
            values[key] = str(path.parent / os.path.expanduser(value))
    sources = values.get("model_sources")
    if isinstance(sources, str):
        parts = filter(None, sources.split(os.pathsep))
        values["model_sources"] = os.pathsep.join(str(path.parent / os.path.expanduser(part)) for part in parts)
    return values
