"""Which file is what: a path below a cache directory -> its kind and the entry it belongs to.

Sources: torch/_inductor/codecache.py, torch/_functorch/_aot_autograd/autograd_cache.py, triton/runtime/cache.py.
Pure functions of the path: no file is opened here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

KINDS = ("fxgraph", "aotautograd", "triton", "module", "native", "autotune", "precompile", "headers", "other")

# A kind is published after every kind that its entries refer to: an AOTAutograd entry names FX graphs, an FX graph
# names kernels and libraries.
PUBLISH_ORDER = {"triton": 1, "fxgraph": 2, "aotautograd": 3}

_TRITON_HASH = re.compile(r"[A-Z2-7]{52}|[0-9a-f]{64}")
_SCRATCH_NAME = re.compile(r"\..*\.tmp|tmp\.pid_.*|.*\.tmp\.pid_.*|tmp\.[0-9a-f-]{32,36}|.*\.lock|lock|\.nfs.*")
_SCRATCH_DIRECTORY = re.compile(r"locks|__pycache__|.*_CxxBuild|tmp\.pid_.*|tmp\.[0-9a-f-]{32,36}|\.cachekeeper.*")
_MODULE_SUFFIXES = (".py",)
_AUTOTUNE_PLACES = ("cache", "autoheuristic")


class Place(NamedTuple):
    """Where a file belongs: the kind, and the path of the entry that is whole or absent."""

    kind: str
    entry: str


def is_scratch_directory(name: str) -> bool:
    """True for a directory that only holds locks, temporary files or compiler scratch."""
    return _SCRATCH_DIRECTORY.fullmatch(name) is not None


def is_scratch_file(name: str) -> bool:
    """True for a lock or temporary file; such files are never kept."""
    return _SCRATCH_NAME.fullmatch(name) is not None


def classify(path: str) -> Place | None:
    """The place of a file, from its '/'-separated path below the cache directory; None for scratch."""
    *directories, name = path.split("/")
    if is_scratch_file(name) or any(map(is_scratch_directory, directories)):
        return None
    if not directories:
        return Place("other", path)
    return _place(directories, name, path)


def _place(directories: list[str], name: str, path: str) -> Place:
    top, depth = directories[0], len(directories)
    if top == "fxgraph" and depth >= 3:
        return Place("fxgraph", "/".join(directories[:3]))
    if top == "aotautograd" and depth >= 2:
        return Place("aotautograd", "/".join(directories[:2]))
    if _TRITON_HASH.fullmatch(directories[-1]) or (top == "triton" and depth >= 3):
        return Place("triton", "/".join(directories))
    if top == "dynamo":
        return Place("precompile", "/".join(directories[:2]) if depth > 1 else path)
    if top in _AUTOTUNE_PLACES or name.endswith(".best_config"):
        return Place("autotune", path)
    if top == "precompiled_headers":
        return Place("headers", path)
    if len(top) == 2 and depth == 1:
        stem = f"{top}/{name.partition('.')[0]}"
        return Place("module" if name.endswith(_MODULE_SUFFIXES) else "native", stem)
    return Place("other", path)


def triton_device(path: str) -> str | None:
    """The directory that `TRITON_CACHE_DIR` would name for an entry: "triton/0" for "triton/0/<HASH>"."""
    parent, _, name = path.rpartition("/")
    return parent if _TRITON_HASH.fullmatch(name) or path.startswith("triton/") else None
