"""A cache's files -> its inventory.

    names of files ──> modules ──> entries of graphs ──> kernels, with choices and code ──> products, coverage

What is read is bounded, unless all is asked for: short files that tell much come first.
"""

from __future__ import annotations

from ..progress import Progress
from ..telemetry import Log
from .budget import LIMIT, Reader
from .coverage import coverage
from .graphs import graphs, read_entries
from .kernels import kernels
from .listing import listing
from .models import Inventory
from .modules import read_modules
from .products import products, read_measured
from .tree import Tree


def inventory(
    tree: Tree,
    telemetry: Log | None = None,
    *,
    skip: frozenset[str] = frozenset(),
    full: bool = False,
    wanted: str = "",
    progress: Progress = lambda stage, done, total: None,
) -> Inventory:
    """Look into a cache.

    Args:
        telemetry: what jobs told of the graphs in it.
        skip: paths that another cache has alike (`tree.alike`): what consists of these alone is only named.
        full: read all that there is. Without it 192 MiB are read at most, and `notes` say what was left out.
        wanted: what is in the name of kernels that are looked into first.
        progress: called with "Reading", the number of bytes read so far, and that of bytes that may be read.

    Raises:
        StoreError: the store of a snapshot cannot be read.
        LocalDiskError: a live directory cannot be read.
    """
    reader = Reader(tree, None if full else LIMIT, progress)
    files = listing(tree.files)
    measured = read_measured(files.timings, reader)
    modules = read_modules(files, reader, skip, full)
    entries = read_entries(files, modules, reader, skip, full)
    found = kernels(files, modules, entries, reader, skip, full, wanted)
    seen = graphs(files, entries, modules, telemetry, found.names)
    return Inventory(
        graphs=seen,
        kernels=found.kernels,
        products=products(measured, modules.kernels),
        coverage=coverage(seen, modules.wrappers),
        entries=files.entries,
        bytes=files.bytes,
        triton_dirs=files.triton_dirs,
        tried=found.tried,
        notes=reader.notes,
        unread=reader.unread,
    )
