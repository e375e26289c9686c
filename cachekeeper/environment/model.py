"""The hash of a model: its config file, whatever its spelling, and the sources that define it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, time
from pathlib import Path
from typing import Any, NoReturn

from ..errors import UsageError
from ..models import ModelHash

# What transformers and diffusers write into a config without it changing the model
# (transformers/configuration_utils.py: to_diff_dict, _remove_keys_not_serialized).
_VOLATILE = frozenset(
    [
        "_name_or_path",  # where this copy was loaded from: a path or a repository
        "transformers_version",  # the version that saved the file
        "_diffusers_version",  # the same for diffusers
        "_commit_hash",  # revision of the repository it was downloaded from
        "_attn_implementation_autoset",  # whether the user chose the attention; the choice is another key
        "_auto_class",  # the Auto class that custom code was registered for
    ]
)
_HINT = "give the model's config as JSON or TOML, as the config.json of a Hugging Face model"


def model_hash(config: Path | None, sources: Sequence[Path] = ()) -> ModelHash:
    """Hash a config file and source files.

    Two configs hash alike where they mean the same: the order of keys, white space and the spelling of
    numbers (1, 1.0, 1e0) do not count, nor do the keys that transformers writes about itself (see `ignored`).
    Of sources, the names relative to what was given and the bytes count; of a directory, every .py below it.

    Raises:
        UsageError: a file is missing, or is not what its name says.
    """
    ignored: set[str] = set()
    parts: list[Any] = [canonical(_load(config), ignored) if config else None]
    parts.append(sorted(_source_hash(file, name) for path in sources for file, name in _source_files(path)))
    digest = hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()
    given = tuple(str(path) for path in sources)
    return ModelHash(digest, str(config) if config else "", given, tuple(sorted(ignored)))


def canonical(value: object, ignored: set[str]) -> str:
    """The one spelling of a config value; adds the names of the keys that it leaves out to `ignored`.

    Raises:
        ValueError: a number that is not finite.
    """
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)}:{canonical(item, ignored)}" for key, item in _pairs(value, ignored))
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(canonical(item, ignored) for item in value) + "]"
    if isinstance(value, float):
        return _number(value)
    if value is None or isinstance(value, (bool, int, str)):
        return json.dumps(value)
    if isinstance(value, (date, time)):
        # TOML's; a datetime is a date.
        return f"{type(value).__name__}({value.isoformat()})"
    raise ValueError(f"{type(value).__name__} is not a value of a config")


def _pairs(value: dict[str, Any], ignored: set[str]) -> list[tuple[str, Any]]:
    ignored.update(_VOLATILE & value.keys())
    kept = {key: item for key, item in value.items() if key not in _VOLATILE}
    # transformers renamed `torch_dtype` to `dtype`, and both spell "torch.bfloat16" as "bfloat16".
    if "torch_dtype" in kept and kept.get("dtype", kept["torch_dtype"]) == kept["torch_dtype"]:
        kept["dtype"] = kept.pop("torch_dtype")
    if isinstance(kept.get("dtype"), str):
        kept["dtype"] = kept["dtype"].removeprefix("torch.")
    return sorted(kept.items())


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"the number {value} is not finite")
    return str(int(value)) if value.is_integer() else repr(value)


def _load(path: Path) -> dict[str, Any]:
    kind = path.suffix.lower()
    if kind not in (".json", ".toml"):
        _refuse(path, f"its name ends with {kind!r}" if kind else "its name has no ending")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        _refuse(path, error.strerror or str(error))
    except UnicodeDecodeError:
        _refuse(path, "it is not text (UTF-8)")
    try:
        value = _parse(text, kind)
        canonical(value, set())
    except RecursionError:
        _refuse(path, "it is nested too deeply")
    except ValueError as error:
        _refuse(path, str(error))
    if not isinstance(value, dict):
        _refuse(path, "there are no keys at its top")
    return value


def _parse(text: str, kind: str) -> object:
    if kind == ".json":
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_not_a_number)
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is there twice")
        found[key] = value
    return found


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _refuse(path: Path, reason: str) -> NoReturn:
    facts = [f"file    {path}", f"reason  {reason}"]
    raise UsageError("the model config cannot be read", facts=facts, hint=_HINT)


def _source_files(path: Path) -> Iterator[tuple[Path, str]]:
    if path.is_file():
        yield path, path.name
        return
    files = sorted(_python_files(path))
    if not files:
        raise _unreadable(path, "no .py file below it" if path.is_dir() else "it does not exist")
    for file in files:
        yield file, file.relative_to(path).as_posix()


def _python_files(root: Path) -> Iterable[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        yield from (Path(folder, name) for name in names if name.endswith(".py"))


def _source_hash(file: Path, name: str) -> list[str]:
    try:
        return [name, hashlib.sha256(file.read_bytes()).hexdigest()]
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error)) from error


def _unreadable(path: Path, reason: str) -> UsageError:
    return UsageError(
        "a model source cannot be read",
        facts=[f"path    {path}", f"reason  {reason}"],
        hint="give a file, or a directory with .py files below it",
    )
