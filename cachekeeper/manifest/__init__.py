"""The manifest of a snapshot: what it holds, and the bytes that say so. See FORMAT.md.

models     the header, and the tables of packs, frames, entries and files
paths      what a path can be
tags       what people can call it
checking   what no manifest says
encoding   models <-> bytes
"""

from .checking import check
from .encoding import FORMAT, HEADER_GUESS, decode, decode_header, decode_telemetry, encode
from .models import (
    Count,
    EntryRow,
    FileRow,
    FrameRow,
    Header,
    Manifest,
    PackRow,
    RunSummary,
    Snapshot,
    Tables,
    TablesInfo,
    counts,
    triton_dirs,
)
from .paths import ALSO, also_label, storable
from .tags import wrong_metric, wrong_new_tag

__all__ = [
    "ALSO",
    "FORMAT",
    "HEADER_GUESS",
    "Count",
    "EntryRow",
    "FileRow",
    "FrameRow",
    "Header",
    "Manifest",
    "PackRow",
    "RunSummary",
    "Snapshot",
    "Tables",
    "TablesInfo",
    "also_label",
    "check",
    "counts",
    "decode",
    "decode_header",
    "decode_telemetry",
    "encode",
    "storable",
    "triton_dirs",
    "wrong_metric",
    "wrong_new_tag",
]
