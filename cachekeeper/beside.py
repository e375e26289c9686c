"""The directories of other caches that are saved beside a cache directory."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from .disk import directory_exists
from .errors import NotFound, UsageError
from .inductor.variables import variable_of

_LABEL_LENGTH = 60


def directories_beside(given: Sequence[str | os.PathLike[str]], cache_dir: Path) -> dict[str, Path]:
    """Label -> directory. Triton's own directory is among them where it lies outside the cache directory.

    A directory that an environment variable names is labelled with the variable, others with their own name.

    Raises:
        NotFound: no such directory.
        UsageError: one lies in the cache directory, or the other way round.
    """
    directories = list(dict.fromkeys(Path(os.path.abspath(os.path.expanduser(item))) for item in given))
    for directory in directories:
        if not directory_exists(directory):
            raise NotFound(f"no directory {directory}", hint="leave that --also out")
        if directory == cache_dir or directory in cache_dir.parents or cache_dir in directory.parents:
            raise UsageError(f"{directory} overlaps with the cache directory {cache_dir}", hint="leave that --also out")
    triton = os.environ.get("TRITON_CACHE_DIR")
    if triton and os.path.isdir(triton):
        directory = Path(os.path.abspath(triton))
        if directory != cache_dir and cache_dir not in directory.parents and directory not in directories:
            directories.append(directory)
    labels: dict[str, Path] = {}
    for directory in directories:
        label = variable_of(directory, os.environ) or _label(directory.name)
        others = (f"{label}-{number}" for number in itertools.count(2))
        labels[label if label not in labels else next(other for other in others if other not in labels)] = directory
    return labels


def _label(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip("._-")[:_LABEL_LENGTH] or "also"
