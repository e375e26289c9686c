"""What a job started in this environment would do: its directories, switches and torch."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from ...config import SETTINGS, unknown_variables
from ...environment import CacheDirectory, triton_directory, triton_home_directory
from ...inductor import classify
from ...inductor.variables import fullest
from ...models import Fingerprint
from ...units import count
from .findings import Finding
from .place import inside, use

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_PREFIX = "CACHEKEEPER_"
_THREAD_LOCAL_SINCE = (2, 14)
_MASKED_SINCE = (2, 13)
_RAISED = "Detected that you are using FX to symbolically trace"
_HANG = "threads on one GPU can hang at a first backward (measured on 2.11, not known to be fixed since)"
_WARM_UP_FIRST = (
    "start it with `cachekeeper run -- COMMAND`, whose guard makes threads safe; or warm up in the main thread: all "
    "shapes, devices, grad and no_grad"
)


def directory(looked_at: Path, torchs: CacheDirectory | None) -> Iterator[Finding]:
    """Which directory would torch use, and why?"""
    if torchs is None:
        message = "no temporary directory can be written to: torch cannot make its default cache directory"
        yield Finding("cache-dir", "error", message, use(Path("/a/local/disk/torchinductor")))
        return
    if looked_at == torchs.path:
        yield Finding("cache-dir", "ok", f"torch would use {torchs.path} ({torchs.source})")
    else:
        message = f"a job started here would use {torchs.path} ({torchs.source}), not {looked_at}"
        yield Finding("cache-dir", "note", message, use(looked_at))
    for note in torchs.notes:
        yield Finding("cache-dir", "warning", note, _absolute_fix(torchs))


def _absolute_fix(torchs: CacheDirectory) -> str:
    value = os.environ.get(_VARIABLE)
    if value == "":
        return f"unset {_VARIABLE}"
    return use(Path(os.path.abspath(os.path.expanduser(value)))) if value else use(torchs.path)


def triton(cache_dir: Path, here: Fingerprint) -> Iterator[Finding]:
    """Where do Triton's kernels go?"""
    version = here.must["triton"]
    if version.value is None and not version.unknown:
        yield Finding("triton", "ok", "Triton is not installed: no kernels of its own")
        return
    fix = f"export TRITON_CACHE_DIR={shlex.quote(str(cache_dir / fullest(_kernel_directories(cache_dir))))}"
    chosen = triton_directory()
    if chosen is None:
        message = "TRITON_CACHE_DIR is not set: the first thread to compile decides, for the kernels of all devices"
        yield Finding("triton", "note", message, fix)
        yield from _home_kernels(cache_dir)
    elif not os.path.isabs(os.environ["TRITON_CACHE_DIR"].strip()):
        message = f"TRITON_CACHE_DIR is relative, so it depends on where the job starts; from here it is {chosen}"
        yield Finding("triton", "warning", message, fix)
    elif inside(chosen, cache_dir):
        yield Finding("triton", "ok", f"kernels go to {chosen}")
    else:
        message = f"kernels go to {chosen}, outside the cache directory; a snapshot made with it set saves them too"
        yield Finding("triton", "note", message, fix)


def _home_kernels(cache_dir: Path) -> Iterator[Finding]:
    home = triton_home_directory()
    kernels = 0 if inside(home, cache_dir) else _kernels(home)
    if kernels:
        message = f"{count(kernels, 'kernel')} in {home}, outside the cache directory: a snapshot needs to be told"
        yield Finding("triton", "note", message, f"cachekeeper snapshot NAME --also {shlex.quote(str(home))}")


def _kernel_directories(cache_dir: Path) -> dict[str, int]:
    try:
        names = sorted(os.listdir(cache_dir / "triton"))
    except OSError:
        return {}
    found = {f"triton/{name}": _kernels(cache_dir / "triton" / name) for name in names}
    return {name: kernels for name, kernels in found.items() if kernels}


def _kernels(triton_dir: Path) -> int:
    try:
        names = os.listdir(triton_dir)
    except OSError:
        return 0
    places = [classify(f"{name}/kernel.json") for name in names]
    return sum(place is not None and place.kind == "triton" for place in places)


def _is_off(value: str) -> bool:
    return value in ("", "0")


def _is_on(value: str) -> bool:
    return not _is_off(value)


def _is_1(value: str) -> bool:
    return value == "1"


def _is_yes(value: str) -> bool:
    return value.lower() in ("1", "true", "on", "yes", "y")


_NO_CACHE = "torch neither reads nor writes any compile cache"
_NO_GRAPHS = "graphs are neither looked up nor saved, and compile anew at every start"
_OTHER_KEYS = "it is part of every graph's key: a cache made without it is missed as a whole"

# The environment variables of torch/_inductor/config.py, torch/_functorch/config.py, torch/compiler/config.py and
# triton/knobs.py that make a warm cache useless; how they are read, in torch/utils/_config_module.py.
_SWITCHES: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", _is_on, _NO_CACHE),
    ("TORCH_COMPILE_FORCE_DISABLE_CACHES", _is_on, _NO_CACHE),
    ("TORCHINDUCTOR_FX_GRAPH_CACHE", _is_off, _NO_GRAPHS),
    (
        "TORCHINDUCTOR_AUTOGRAD_CACHE",
        _is_off,
        "forward and backward are split anew at every start (no AOTAutograd cache)",
    ),
    ("TORCHINDUCTOR_FREEZING", _is_1, "the AOTAutograd cache is bypassed, and graphs have other keys"),
    ("TORCH_COMPILE_DEBUG", _is_1, _OTHER_KEYS),
    ("INDUCTOR_PROVENANCE", _is_on, _OTHER_KEYS),
    ("TRITON_ALWAYS_COMPILE", _is_yes, "Triton compiles every kernel anew"),
)


def switches() -> Iterator[Finding]:
    """Does a variable switch a cache off, or change every key?"""
    clean = True
    for name, bad, effect in _SWITCHES:
        value = os.environ.get(name)
        if value is not None and bad(value):
            clean = False
            yield Finding("switches", "warning", f"{name}={value}: {effect}", f"unset {name}")
    if clean:
        yield Finding("switches", "ok", "no variable switches a cache off")


def torch(here: Fingerprint) -> Iterator[Finding]:
    """Which torch is it, and what does a warm cache not cure there?"""
    version = here.must["torch"]
    if version.unknown:
        fix = "/path/to/python-of-the-job -m cachekeeper doctor"
        message = f"{version.unknown} ({sys.executable}): what a cache depends on is not known, nothing can be restored"
        yield Finding("torch", "error", message, fix)
        return
    yield Finding("torch", "ok", f"torch {version.value}")
    match = re.match(r"(\d+)\.(\d+)", str(version.value))
    if match:
        message = _about_threads(f"{match[1]}.{match[2]}", (int(match[1]), int(match[2])))
        yield Finding("threads", "note", message, _WARM_UP_FIRST)


def _about_threads(version: str, number: tuple[int, int]) -> str:
    if number < _MASKED_SINCE:
        cause = "while one traces, compiled calls of the others raise"
    elif number < _THREAD_LOCAL_SINCE:
        cause = (
            "tracing outside a Dynamo compile (make_fx, export, a lazy backward) makes compiled calls of others raise"
        )
    else:
        return f"on torch {version} each thread traces on its own, but a warm cache does not cure this: {_HANG}"
    return f"a warm cache does not make threads safe on torch {version}: {cause} '{_RAISED}', and {_HANG}"


def unknown_facts(here: Fingerprint) -> Iterator[Finding]:
    """Is everything known that a restore compares?"""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, fact in here.must.items():
        if fact.unknown:
            by_reason[fact.unknown].append(name)
    for reason, names in by_reason.items():
        message = f"unknown here: {', '.join(names)} ({reason}); no snapshot can be said to fit"
        yield Finding("fingerprint", "warning", message)
    if not by_reason:
        yield Finding("fingerprint", "ok", f"every fact that a cache depends on is known ({here.id})")


def variables() -> Iterator[Finding]:
    """Is a variable set that looks like a setting of cachekeeper and is none?"""
    for name in unknown_variables():
        # Without the prefix that all share, which would make anything look alike.
        close = difflib.get_close_matches(name.removeprefix(_PREFIX).lower(), SETTINGS, n=1)
        right = f"{_PREFIX}{close[0].upper()}" if close else ""
        meant = f": did you mean {right}?" if right else ""
        # The value stays out of the fix: what it is, nobody knows.
        fix = f'export {right}="${name}"; unset {name}' if right else f"unset {name}"
        yield Finding("variables", "warning", f"{name} is no setting of cachekeeper{meant}", fix)
