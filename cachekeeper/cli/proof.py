"""Certificates in words."""

from __future__ import annotations

from ..models import Proof
from ..units import count
from .output import table

# Where graphs miss and no entry appears.
ANOTHER_PLACE = "does the code choose another cache directory, as torch's fresh_cache() does?"


def proof_in_words(proof: Proof) -> str:
    """A certificate in one line: what was run, when, and how long it takes cold and warm."""
    how = "".join((", in threads" if proof.in_thread else "", ", a process a device" * proof.per_device_process))
    return f"{proof.target}, {count(len(proof.steps), 'step')}{how}, {proof.when}: {seconds_in_words(proof)}"


def in_words(proof: Proof) -> str:
    """What a certificate says, in one line."""
    hits = sum(step.hits for step in proof.steps)
    bypasses = sum(step.bypasses for step in proof.steps)
    passed = f"; autograd of {count(bypasses, 'graph')} traced anew in every process" if bypasses else ""
    return (
        f"{count(len(proof.steps), 'step')} in a fresh process, {count(hits, 'graph')} found, nothing missed, "
        f"nothing built: {seconds_in_words(proof)}{passed}"
    )


def seconds_in_words(proof: Proof) -> str:
    """ "cold 61 s, warm 9.0 s"; cold only where the cache was filled by the same warmup."""
    cold, warm = (sum(getattr(step, f"{word}_seconds") for step in proof.steps) for word in ("cold", "warm"))
    built = sum(step.built for step in proof.steps)
    before = f"cold {_seconds(cold)}, " if built else ""
    return f"{before}warm {_seconds(warm)}"


def _seconds(seconds: float) -> str:
    """Never in minutes: what is cold and what is warm are to be compared."""
    return f"{seconds:,.1f} s" if seconds < 10 else f"{seconds:,.0f} s"


def proof_table(proof: Proof) -> list[str]:
    """Its steps, a line each."""
    rows = [("STEP", "COLD", "WARM", "BUILT", "GRAPHS FOUND", "TRACED ANEW")]
    rows += [
        (
            str(step),
            f"{step.cold_seconds:.1f} s" if step.built else "-",
            f"{step.warm_seconds:.1f} s",
            f"{step.built:,}",
            f"{step.hits:,}",
            f"{step.bypasses:,}",
        )
        for step in proof.steps
    ]
    return table(rows, right=range(1, 6))
