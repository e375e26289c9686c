"""cachekeeper keeps PyTorch's compile cache: fingerprint, snapshot, verify and restore it.

    cli            options in, one call of a verb, words out
    pages          a comparison or a snapshot -> one HTML page of its own
    verbs          what each command does: a function a file, frozen results
    ───────────────────────────────────────────────────────────────────────────────────────────────────────
    inventory      a cache's files -> its graphs and kernels      diffing     two of these -> what differs, and why
      watching     a live cache, kept whole
    capture        a live cache -> packs     delivery     packs -> files     mending     files -> a live cache, again
      warming      plans, run and judged     instead     another snapshot than a damaged one
    staging        files -> a live cache     comparison     a cache against a manifest     explaining   why it missed
      clearing     a live cache -> a trash beside it     restored, evidence   what is written down in one
    fitting, preflight, naming   fits here? room? which name?     pins, trash, sweeping, retention   what stays
      signatures, trust, rollback   who vouches for it     inside, guard   within torch's process
    repository, histories   snapshots, names, contents     leases, condemned, writing   who is at work beside sweeps
    ───────────────────────────────────────────────────────────────────────────────────────────────────────
    stores, indexes, doubted  bytes at a key   livecache, reading, seen, beside, strangers   a directory   runs   jobs
    environment    this machine -> Fingerprint     packs, manifest, megacache, archives, exported   formats (FORMAT.md)
    inductor       the one place that knows Inductor's and Triton's files
    ───────────────────────────────────────────────────────────────────────────────────────────────────────
    disk, schema, workers, supervision, config, plans, targets, models, telemetry, units, masking, records, errors
      ownership, signing, keyfiles, system, progress, variables

A module imports only from its own row (what is indented goes on with it) and the rows below; tests/test_layers.py says
so. The functions below are the public API; they are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .plans import plan
    from .verbs.bisect import bisect
    from .verbs.clear import clear
    from .verbs.copy import copy
    from .verbs.diff import diff
    from .verbs.doctor import doctor
    from .verbs.explain import explain
    from .verbs.export import export
    from .verbs.fingerprint import fingerprint
    from .verbs.import_cache import import_cache
    from .verbs.keep import keep
    from .verbs.keygen import keygen
    from .verbs.ls import ls
    from .verbs.merge import merge
    from .verbs.move import move
    from .verbs.pin import pin
    from .verbs.replay import replay
    from .verbs.report import report
    from .verbs.restore import restore
    from .verbs.rm import rm
    from .verbs.run import run
    from .verbs.show import show
    from .verbs.sign import sign
    from .verbs.snapshot import snapshot
    from .verbs.stats import stats
    from .verbs.status import status
    from .verbs.sweep import sweep
    from .verbs.undo import undo
    from .verbs.unpin import unpin
    from .verbs.verify import verify
    from .verbs.warmup import warmup
    from .verbs.watch import watch

__all__ = [
    "__version__",
    "bisect",
    "clear",
    "copy",
    "diff",
    "doctor",
    "explain",
    "export",
    "fingerprint",
    "import_cache",
    "keep",
    "keygen",
    "ls",
    "merge",
    "move",
    "pin",
    "plan",
    "replay",
    "report",
    "restore",
    "rm",
    "run",
    "show",
    "sign",
    "snapshot",
    "stats",
    "status",
    "sweep",
    "undo",
    "unpin",
    "verify",
    "warmup",
    "watch",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name == "plan":
        from .plans import plan

        return plan
    if name in __all__:
        from importlib import import_module

        from .system import require_linux

        require_linux()
        return getattr(import_module(f".verbs.{name}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
