"""Tar files, plain or compressed.

kinds         what is an archive, and of which kind
compression   its bytes, decompressed and compressed
unpacking     into a directory, with care
writing       the same bytes for the same files
"""

from .compression import Readable, Writable
from .kinds import ENDINGS, HEAD_BYTES, recognise
from .unpacking import Unpacked, unpack
from .writing import Member, write_tar

__all__ = ["ENDINGS", "HEAD_BYTES", "Member", "Readable", "Unpacked", "Writable", "recognise", "unpack", "write_tar"]
