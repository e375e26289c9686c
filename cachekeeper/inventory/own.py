"""Kernels that no module of Inductor holds: the job's own, launched without a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..inductor.autotuner import Fastest, fastest
from ..inductor.metadata import Metadata
from .budget import Reader
from .directories import Code, binary, options, presence
from .listing import KernelDirectory, Listing
from .models import Kernel, Winner

_OPTIONS = ("num_warps", "num_stages", "num_ctas")
_LONGEST_NAME = 150  # of a kernel in the name of a file of Triton's autotuner


def read_timed(names: Iterable[str], listing: Listing, reader: Reader) -> dict[str, Fastest]:
    """What Triton's own autotuner measured; not of a kernel that it chose for several times, as for two shapes."""
    files = {name: listing.autotuned.get(name[:_LONGEST_NAME], ()) for name in names}
    single = {found[0]: name for name, found in files.items() if len(found) == 1}
    read = ((single[file], fastest(data)) for file, data in reader.each(single, "autotune results"))
    return {name: found for name, found in read if found}


def built(
    directories: Sequence[KernelDirectory], timed: Fastest | None, described: Mapping[str, Metadata]
) -> KernelDirectory | None:
    """The directory of what is launched, where that can be told.

    Args:
        directories: all that bear the kernel's name.
        timed: what was chosen for it.
    """
    if timed and len(directories) > 1:
        given = [(name, timed.config[name]) for name in _OPTIONS if name in timed.config]
        directories = [
            item
            for item in directories
            if item.path in described and all(getattr(described[item.path], name) == value for name, value in given)
        ]
    return directories[0] if len(directories) == 1 else None


def own_kernel(
    name: str,
    directories: Sequence[KernelDirectory],
    built: KernelDirectory | None,
    timed: Fastest | None,
    described: Mapping[str, Metadata],
    code: Mapping[str, Code],
) -> Kernel:
    """What is known of such a kernel.

    Args:
        directories: all that bear its name.
        built: that which is launched.
    """
    return Kernel(
        name=name,
        type="triton",
        winner=_winner(directories, timed, described),
        binary=binary(built, described.get(built.path), code.get(built.path, Code())) if built else None,
        compiled=len(directories),
        bytes=sum(directory.bytes for directory in directories),
        built=presence(built, directories),
    )


def _winner(directories: Sequence[KernelDirectory], timed: Fastest | None, described: Mapping[str, Metadata]) -> Winner:
    if timed:
        return Winner(timed.config, "recorded", timed.milliseconds)
    only = described.get(directories[0].path) if len(directories) == 1 else None
    return Winner(options(only), "only one") if only else Winner()
