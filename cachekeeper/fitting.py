"""Would torch use a snapshot on this machine?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .environment import compare
from .manifest import Header, Snapshot
from .models import Comparison, Difference, Fingerprint


def fit(header: Header, here: Fingerprint) -> Comparison:
    """The environment that a snapshot was made on, against this one."""
    comparison = compare(header.fingerprint, here, cpu_code=header.entries_of("native") > 0)
    wrong = _wrong_targets(header, here)
    return replace(comparison, must=(*comparison.must, wrong)) if wrong else comparison


def _wrong_targets(header: Header, here: Fingerprint) -> Difference | None:
    """Kernels in the snapshot that were built for no GPU of this machine, whatever its fingerprint says."""
    gpus = here.must["gpu"].value if "gpu" in here.must else None
    if not isinstance(gpus, list):
        return None
    ours = {str(gpu["capability"]) for gpu in gpus if isinstance(gpu, dict) and gpu.get("capability")}
    theirs = {_capability(target) for target in header.targets}
    if not ours or not theirs or theirs & ours:
        return None
    return Difference("must", "kernels", ", ".join(sorted(theirs)), ", ".join(sorted(ours)), "the GPU cannot load them")


def _capability(target: str) -> str:
    """ "cuda:90" -> "sm_90", "hip:gfx942" -> "gfx942"."""
    backend, _, arch = target.partition(":")
    return f"sm_{arch}" if backend == "cuda" else arch


def newest_fitting(snapshots: Iterable[Snapshot], here: Fingerprint) -> Snapshot | None:
    """The first of the snapshots, given newest first, that torch would use here."""
    return next((snapshot for snapshot in snapshots if fit(snapshot.header, here).fits), None)
