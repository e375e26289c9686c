"""Headers, tables and fingerprints as values, for tests that need no cache."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from cachekeeper.manifest import Count, EntryRow, FileRow, FrameRow, Header, PackRow, Tables
from cachekeeper.models import Fact, Fingerprint, Proof, ProvedStep

ID = "7c1e04ab" + "0" * 56


def fingerprint(torch: str = "2.11.0", capability: str = "sm_90", **must: Fact) -> Fingerprint:
    """An environment with one GPU."""
    gpu = [{"name": "NVIDIA H200", "capability": capability}]
    facts = {"torch": Fact(torch), "cuda": Fact("13.0"), "gpu": Fact(gpu), "environment": Fact({}), **must}
    return Fingerprint("0123456789ab", facts, {"driver": Fact("570.86.10")}, {"user": Fact("me")})


def header(**changes: Any) -> Header:
    """The header of a snapshot with one graph."""
    plain = Header(
        format=1,
        tool="0.1.0",
        created="2026-01-31T08:15:00Z",
        name="drafter",
        parent="",
        message="",
        metrics={},
        live=(),
        damaged=(),
        cache_dir="/tmp/torchinductor_me",
        also={},
        fingerprint=fingerprint(),
        counts={"fxgraph": Count(1, 1, 5)},
        triton_dirs={},
        stored=14,
        targets=(),
    )
    return replace(plain, **changes)


def proof(**changes: Any) -> Proof:
    """The certificate of two steps."""
    steps = (
        ProvedStep("cuda:0", "train", "512", 9.9, 4.3, 33, 2, 0, 2),
        ProvedStep("cuda:0", "infer", "512", 1.9, 0.2, 10, 1, 1, 1),
    )
    return replace(Proof("train.py:step", "ab" * 32, "2026-01-31T08:10:00Z", False, False, steps), **changes)


def tables(path: str = "fxgraph/ab/fx/y", data: bytes = b"graph") -> Tables:
    """The tables of the same."""
    return Tables(
        (PackRow("ab" * 32, 1000),),
        (FrameRow(0, 24, 14, len(data)),),
        (EntryRow("fxgraph", path.rpartition("/")[0]),),
        (FileRow(path, 0o644, len(data), hashlib.sha256(data).hexdigest(), 0, 0, 0),),
    )
