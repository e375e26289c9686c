"""What is in a store: snapshots, names with their history, packs, and what was removed.

snapshots   manifests are read, written and looked for
names       what a name can be, and where it has pointed
mark        what makes a place a store
packs       where each content lies
removed     how a snapshot was removed
"""

from .mark import FORMAT_KEY
from .names import Move, check_name, is_name, split_reference
from .packs import Location, locations, pack_key, pack_sizes, sizes_of
from .removed import GRACE_SECONDS, Removal
from .snapshots import Listing, Repository, manifest_key, open_repository

__all__ = [
    "FORMAT_KEY",
    "GRACE_SECONDS",
    "Listing",
    "Location",
    "Move",
    "Removal",
    "Repository",
    "check_name",
    "locations",
    "is_name",
    "manifest_key",
    "open_repository",
    "pack_key",
    "pack_sizes",
    "sizes_of",
    "split_reference",
]
