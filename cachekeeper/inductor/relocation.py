"""Files that name the directory they are in: kept with a placeholder, restored with the directory restored into."""

from __future__ import annotations

import os

from .groups import PLACEHOLDER, GroupError, expand_group, is_group, normalise_group
from .pickles import rewrite_paths

_PICKLED = ("fxgraph", "aotautograd")


def names_its_directory(kind: str, path: str) -> bool:
    """True for a file that may have to be rewritten when it moves."""
    return kind in _PICKLED or (kind == "triton" and is_group(path))


def normalise(kind: str, data: bytes, root: str, directory: str) -> tuple[bytes, str]:
    """The bytes to keep of a file for which `names_its_directory` says so.

    Args:
        root: absolute path of the cache directory.
        directory: absolute path of the directory that the file is in.

    Returns:
        The bytes with the placeholder, and another directory than its own that it pointed to, or "".
    """
    try:
        kept, named = rewrite_paths(data, PLACEHOLDER) if kind in _PICKLED else normalise_group(data)
    except GroupError:
        return data, ""
    own = root if kind in _PICKLED else directory
    foreign = [other for other in named if other != own and os.path.realpath(other) != os.path.realpath(own)]
    return kept, min(foreign, default="")


def expand(kind: str, data: bytes, root: str, directory: str) -> bytes:
    """The bytes to restore of a kept file; arguments as for `normalise`, of the place restored into."""
    if kind in _PICKLED:
        return rewrite_paths(data, root)[0]
    try:
        return expand_group(data, directory)
    except GroupError:
        return data
