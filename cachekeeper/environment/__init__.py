"""Look at this machine: what the validity of a compile cache depends on, without importing torch.

machine       the facts, put together              comparison   two fingerprints, and what follows
installation  torch and Triton as installed        words        facts as people read them
gpu           the GPUs torch would see             deep         the same facts from torch itself
nvml, kfd     NVIDIA's and AMD's lists of them     directories  where the caches are
cpu           instruction set and threads          model        hash of a config and of sources
toolchain     compiler, C libraries, Python ABI    host         what is recorded for people
variables     which environment variables count
"""

from .comparison import compare
from .deep import asked_torch
from .directories import CacheDirectory, cache_directory, triton_directory, triton_home_directory
from .machine import fingerprint, intact
from .model import model_hash
from .words import shown, summary

__all__ = [
    "CacheDirectory",
    "asked_torch",
    "cache_directory",
    "compare",
    "fingerprint",
    "intact",
    "model_hash",
    "shown",
    "summary",
    "triton_directory",
    "triton_home_directory",
]
