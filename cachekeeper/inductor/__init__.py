"""The one place that knows Inductor's and Triton's files.

layout        which file is what: its kind, the entry it belongs to, or scratch
structure     is a file what its kind promises, without unpickling or loading anything
roots         where cache directories begin among files
relocation    files that name the directory they are in: Triton's groups, Inductor's pickles
variables     the environment variables that a job must have to find a restored cache
sources       modules of a kernel in Triton     wrappers       modules that launch a graph's kernels
cpp           kernels in C++                    graphs, keys   what a graph is, and what its key is made of
ttir, ptx, cubin, metadata     what Triton compiled a kernel to, and with which options
tuning, autotuner              what autotuning measured and chose
"""

from .groups import is_group
from .layout import KINDS, PUBLISH_ORDER, Place, classify, is_telling, triton_device, triton_dirs
from .relocation import expand, names_its_directory, normalise
from .structure import FileCheck, check_file, incomplete_groups
from .variables import job_environment

__all__ = [
    "KINDS",
    "PUBLISH_ORDER",
    "FileCheck",
    "Place",
    "check_file",
    "classify",
    "expand",
    "incomplete_groups",
    "is_group",
    "is_telling",
    "job_environment",
    "names_its_directory",
    "normalise",
    "triton_device",
    "triton_dirs",
]
