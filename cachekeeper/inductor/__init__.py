"""The one place that knows Inductor's and Triton's files.

layout      which file is what: its kind, the entry it belongs to, or scratch
structure   is a file what its kind promises, without unpickling or loading anything
groups      Triton's group files and the absolute paths in them
environment variables that a job must have to find a restored cache
"""

from .groups import GroupError, expand_group, group_children, is_group, normalise_group
from .layout import KINDS, PUBLISH_ORDER, Place, classify, triton_device
from .structure import FileCheck, check_file, incomplete_groups
from .variables import job_environment

__all__ = [
    "KINDS",
    "PUBLISH_ORDER",
    "FileCheck",
    "GroupError",
    "Place",
    "check_file",
    "classify",
    "expand_group",
    "group_children",
    "incomplete_groups",
    "is_group",
    "job_environment",
    "normalise_group",
    "triton_device",
]
