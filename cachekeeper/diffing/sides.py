"""What is known of a cache besides its files."""

from __future__ import annotations

import os

from ..manifest import Snapshot
from ..models import Fingerprint, Proof
from ..telemetry import Log
from ..units import short_id
from .models import Side


def side_of(label: str, snapshot: Snapshot, telemetry: Log | None) -> Side:
    """A snapshot.

    Args:
        label: as the person called it; a full id is shortened.
        telemetry: what is kept with it of what jobs told, or None.
    """
    header = snapshot.header
    return Side(
        label=short_id(label) if label == snapshot.id else label,
        id=snapshot.id,
        name=header.name,
        created=header.created,
        message=header.message,
        metrics=header.metrics,
        tags=header.tags,
        cache_dir=header.cache_dir,
        origin=header.origin,
        fingerprint=header.fingerprint,
        run=header.run,
        shapes=_shapes(header.proof),
        world_size=_world_size(header.fingerprint, telemetry),
        fallbacks=_fallbacks(telemetry) if telemetry else (),
        proof_seconds=proof_seconds(header.proof),
    )


def side_of_directory(label: str, path: str | os.PathLike[str], fingerprint: Fingerprint | None) -> Side:
    """A live cache directory on this machine, whose fingerprint it gets, where that is known."""
    return Side(label=label, cache_dir=os.path.abspath(path), fingerprint=fingerprint)


def proof_seconds(proof: Proof | None) -> tuple[float, float] | None:
    """Seconds of all steps of a certificate, cold and warm; None without one."""
    if proof is None:
        return None
    return sum(step.cold_seconds for step in proof.steps), sum(step.warm_seconds for step in proof.steps)


def _world_size(fingerprint: Fingerprint, telemetry: Log | None) -> int | None:
    """As the processes of the run told, else as the launcher told whoever saved it."""
    if telemetry and telemetry.process.world_size is not None:
        return telemetry.process.world_size
    job = fingerprint.recorded.get("job")
    told = job.value.get("WORLD_SIZE") if job and isinstance(job.value, dict) else None
    return int(told) if isinstance(told, str) and told.isascii() and told.isdecimal() else None


def _shapes(proof: Proof | None) -> tuple[str, ...]:
    """The shapes of a certificate's steps, each once, in their order."""
    return tuple(dict.fromkeys(step.shape for step in proof.steps if step.shape)) if proof else ()


def _fallbacks(log: Log) -> tuple[str, ...]:
    told = {": ".join(filter(None, (event.function, event.reason))) for event in log.fallbacks}
    return tuple(sorted(told - {""}))
