"""cachekeeper keeps PyTorch's compile cache: fingerprint, snapshot, verify and restore it.

    cli            options in, one call of a verb, words out
    verbs          fingerprint snapshot restore verify copy ls show pin unpin doctor: a function a file, frozen results
    ───────────────────────────────────────────────────────────────────────────────────────────────────────
    capture        a live cache -> packs           delivery     packs -> the bytes of files
    staging        files -> a live cache           comparison   a live cache against a manifest
    fitting        would torch use it here?        preflight    can the disk take it?    pins    what must stay
    repository     snapshots, names and contents in a store
    ───────────────────────────────────────────────────────────────────────────────────────────────────────
    stores, indexes  bytes at a key                livecache, reading, seen, beside   a directory, looked at
    environment    this machine -> Fingerprint     packs, manifest   the format (FORMAT.md)
    inductor       the one place that knows Inductor's and Triton's files
    ───────────────────────────────────────────────────────────────────────────────────────────────────────
    disk, schema, workers, config, models, units, errors

A module imports only from its own row and the rows below; tests/test_layers.py says so. The functions below are the
public API; they are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .verbs.copy import copy
    from .verbs.doctor import doctor
    from .verbs.fingerprint import fingerprint
    from .verbs.ls import ls
    from .verbs.pin import pin
    from .verbs.restore import restore
    from .verbs.show import show
    from .verbs.snapshot import snapshot
    from .verbs.unpin import unpin
    from .verbs.verify import verify

__all__ = [
    "__version__",
    "copy",
    "doctor",
    "fingerprint",
    "ls",
    "pin",
    "restore",
    "show",
    "snapshot",
    "unpin",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(f".verbs.{name}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
