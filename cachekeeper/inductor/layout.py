"""Which file is what: a path below a cache directory -> its kind and the entry it belongs to.

Sources: torch/_inductor/codecache.py, torch/_functorch/_aot_autograd/autograd_cache.py, triton/runtime/cache.py.
Pure functions of the path: no file is opened here.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

KINDS = ("fxgraph", "aotautograd", "triton", "module", "native", "autotune", "precompile", "headers", "other")

# A kind is published after every kind that its entries refer to: an AOTAutograd entry names FX graphs, an FX graph
# names kernels and libraries.
PUBLISH_ORDER = {"triton": 1, "fxgraph": 2, "aotautograd": 3}

# What Triton makes of a kernel, by the ends of the files' names; and what of it a machine runs, a launcher's too.
FORMS = ("ttir", "ttgir", "llir", "ptx", "cubin", "amdgcn", "hsaco", "spv")
CODE = frozenset(("cubin", "hsaco", "spv", "metallib", "so", "o"))

_TRITON_HASH = re.compile(r"[A-Z2-7]{52}|[0-9a-f]{64}")
_TEMPORARY_NAME = re.compile(r"tmp\.(?:pid_.*|[0-9a-f-]{32,36})")
_HASHED_NAME = re.compile(r"c[a-z2-7]{51}\.|[0-9a-f]{64}\.best_config$")
_OF_CACHES_ALONE = ("fxgraph", "aotautograd", "triton", "precompile")
WORKSHOP = ".cachekeeper"
EXPORTED = ".cachekeeper-export.json"
HEADERS = "precompiled_headers"
_SCRATCH_DIRECTORIES = ("locks", "__pycache__")
_MODULE_SUFFIXES = (".py",)
# What torch, Triton and cachekeeper make at the top of a cache directory.
_TOP_LEVEL = frozenset(
    (
        *("fxgraph", "aotautograd", "triton", "locks", "cache", "autoheuristic", "dynamo", HEADERS),
        *("aoti_eager", "bisect", "cutedsl_compile_cache", "gcc", "helion", "memoizer_cache.json", "torch_cutlass"),
        *("unhashed_kernel_inputs", "also", "mega-cache", WORKSHOP),
    )
)
_TOP_NAME = re.compile(
    r"[a-z0-9]{2}|[a-z][a-z2-7]{50,51}|tmp[a-z0-9_]{8}(\.py)?|configs_[0-9a-f]+\.json|halide-runtime-[\w.-]+"
)
_KEYED_NAME = re.compile(r"[fac]?[a-z2-7]{51}|[A-Z2-7]{52}|[0-9a-f]{64}")
_HOLDS_ENTRIES = re.compile(r"fxgraph(/[a-z2-7]{2})?|aotautograd|triton(/[0-9]+)?|dynamo|[a-z2-7]{2}|[0-9a-f]{2}")
_AUTOTUNE_PLACES = ("cache", "autoheuristic")


class Place(NamedTuple):
    """Where a file belongs: the kind, and the path of the entry that is whole or absent."""

    kind: str
    entry: str


def is_scratch_directory(name: str) -> bool:
    """True for a directory that only holds locks, temporary files or compiler scratch."""
    return (
        name in _SCRATCH_DIRECTORIES
        or name.endswith("_CxxBuild")
        or name == WORKSHOP
        or (name.startswith("tmp.") and _TEMPORARY_NAME.fullmatch(name) is not None)
    )


def is_scratch_file(name: str) -> bool:
    """True for a lock or temporary file, and for what an export says of itself; such files are never kept."""
    return (
        name == EXPORTED
        or name.endswith(".lock")
        or name == "lock"
        or (name.startswith(".") and name.endswith(".tmp"))
        or name.startswith(".nfs")
        or ".tmp.pid_" in name
        or (name.startswith("tmp.") and _TEMPORARY_NAME.fullmatch(name) is not None)
    )


def classify(path: str) -> Place | None:
    """The place of a file, from its '/'-separated path below the cache directory; None for scratch."""
    directory, _, name = path.rpartition("/")
    if is_scratch_file(name) or _is_scratch(directory):
        return None
    kind, entry = _place_in(directory)
    if kind != "":
        return Place(kind, entry or path)
    if name.endswith(".best_config"):
        return Place("autotune", path)
    if len(directory) == 2:
        stem = f"{directory}/{name.partition('.')[0]}"
        return Place("module" if name.endswith(_MODULE_SUFFIXES) else "native", stem)
    return Place("other", path)


@functools.lru_cache(4096)
def _is_scratch(directory: str) -> bool:
    return any(map(is_scratch_directory, directory.split("/")))


@functools.lru_cache(4096)
def _place_in(directory: str) -> tuple[str, str]:
    """(kind, entry) of every file in a directory: entry "" where each file is one, kind "" where its name decides."""
    parts = directory.split("/")
    top, depth = parts[0], len(parts)
    if top == "fxgraph" and depth >= 3:
        return "fxgraph", "/".join(parts[:3])
    if top == "aotautograd" and depth >= 2:
        return "aotautograd", "/".join(parts[:2])
    for number, part in enumerate(parts, 1):
        if _TRITON_HASH.fullmatch(part) or (top == "triton" and number == 3):
            return "triton", "/".join(parts[:number])
    if top == "dynamo":
        return "precompile", "/".join(parts[:2]) if depth > 1 else ""
    if top in _AUTOTUNE_PLACES:
        return "autotune", ""
    if top == HEADERS:
        return "headers", ""
    return "", ""


def holds_entries(path: str) -> bool:
    """True for the path of a directory that torch or Triton makes for entries to lie in."""
    return _HOLDS_ENTRIES.fullmatch(path) is not None


def is_telling(kind: str, path: str) -> bool:
    """True for a file that only a compile cache has: other directories hold modules and libraries, too."""
    return kind in _OF_CACHES_ALONE or _HASHED_NAME.match(path.rpartition("/")[2]) is not None


def may_be_at_top(name: str) -> bool:
    """True for a name that torch, Triton or cachekeeper give to what they make at the top of a cache directory."""
    return (
        name in _TOP_LEVEL
        or _TOP_NAME.fullmatch(name) is not None
        or _TRITON_HASH.fullmatch(name) is not None
        or is_scratch_directory(name)
        or is_scratch_file(name)
    )


def is_keyed(kind: str, path: str) -> bool:
    """True for a file that only a compile cache has, by a name on its path that only a key gives.

    Stricter than `is_telling`: a checkout of Triton's own sources, in a directory `triton`, has no such name.
    """
    return is_telling(kind, path) and any(_KEYED_NAME.fullmatch(part.partition(".")[0]) for part in path.split("/"))


def cache_of(path: str) -> str | None:
    """The directory whose cache a file is an entry of: where torch puts it, with a name that only a key gives.

    Returns:
        "" for the directory that the path begins in, "a/b" for one below it, None for a file of no cache.
    """
    parts = path.split("/")
    for length in range(len(parts) - 1):
        inner = "/".join(parts[length:])
        place = classify(inner)
        if place and is_keyed(place.kind, inner) and _is_where_torch_puts_it(place.kind, parts[length:]):
            return "/".join(parts[:length])
    return None


def _is_where_torch_puts_it(kind: str, parts: list[str]) -> bool:
    """True for a place below the top of a cache directory, not of one within it."""
    if kind == "triton":
        return any(map(_TRITON_HASH.fullmatch, parts[1:3] if parts[0] == "triton" else parts[:1]))
    return kind in _OF_CACHES_ALONE or (len(parts) == 2 and may_be_at_top(parts[0]))


def triton_dirs(entries: Iterable[str]) -> dict[str, int]:
    """Directory of kernels -> number of entries, as {"triton/0": 285}, for the paths of entries of kind "triton"."""
    return dict(Counter(filter(None, map(triton_device, sorted(entries)))))


def triton_device(path: str) -> str | None:
    """The directory that `TRITON_CACHE_DIR` would name for an entry: "triton/0" for "triton/0/<HASH>"."""
    parent, _, name = path.rpartition("/")
    return parent if _TRITON_HASH.fullmatch(name) or path.startswith("triton/") else None
