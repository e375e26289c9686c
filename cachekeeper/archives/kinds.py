"""The kinds of archives, told from their bytes or named by the ending of a file."""

from __future__ import annotations

import tarfile

# Kind -> endings of file names, for what is written; what is read is told from its bytes.
ENDINGS = {"tar.zst": (".tar.zst", ".tzst"), "tar.gz": (".tar.gz", ".tgz"), "tar": (".tar",)}
HEAD_BYTES = 512
_MAGICS = {"tar.gz": b"\x1f\x8b", "tar.bz2": b"BZh", "tar.xz": b"\xfd7zXZ\0", "tar.zst": b"\x28\xb5\x2f\xfd"}


def recognise(head: bytes) -> str:
    """The kind of an archive, such as "tar.zst", from its first 512 bytes; "" for anything else."""
    for kind, magic in _MAGICS.items():
        if head.startswith(magic):
            return kind
    if head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:  # a skippable frame, as pzstd begins with
        return "tar.zst"
    return "tar" if _is_tar_header(head) else ""


def _is_tar_header(head: bytes) -> bool:
    if len(head) < HEAD_BYTES:
        return False
    try:
        tarfile.TarInfo.frombuf(head[:HEAD_BYTES], "utf-8", "surrogateescape")
    except tarfile.TarError:
        return not any(head[:HEAD_BYTES])  # an archive without a member is one too
    return True
