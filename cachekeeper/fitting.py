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
    if not isinstance(gpus, list) or not header.targets:
        return None
    ours = {f"cuda:{str(gpu.get('capability', '')).replace('.', '')}" for gpu in gpus if isinstance(gpu, dict)}
    theirs = {target for target in header.targets if target.startswith("cuda:")}
    if not theirs or theirs & ours:
        return None
    return Difference("must", "kernels", _names(theirs), _names(ours), "the GPU cannot load them")


def _names(targets: Iterable[str]) -> str:
    return ", ".join(sorted(target.replace("cuda:", "sm_") for target in targets))


def newest_fitting(snapshots: Iterable[Snapshot], here: Fingerprint) -> Snapshot | None:
    """The first of the snapshots, given newest first, that torch would use here."""
    return next((snapshot for snapshot in snapshots if fit(snapshot.header, here).fits), None)
