"""What autotuning chose for a kernel, and what that was compiled to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..inductor.metadata import Metadata
from ..inductor.sources import LAUNCH_OPTIONS, KernelModule, KernelSource
from ..inductor.tuning import Chosen, chosen
from .budget import Reader
from .directories import options
from .listing import KernelDirectory
from .models import Config, Winner
from .tree import TreeFile

_OWN = "user_autotune"
_TEMPLATE = "template"

Narrow = Callable[[Sequence[KernelDirectory], Sequence[int]], Sequence[KernelDirectory]]


class Record(NamedTuple):
    """A .best_config and what it says."""

    file: TreeFile
    chosen: Chosen


class Choice(NamedTuple):
    """A winner, its directory where that can be told, and the file that says so."""

    winner: Winner = Winner()
    directory: KernelDirectory | None = None
    file: TreeFile | None = None


def read_records(files: Iterable[TreeFile], reader: Reader) -> dict[str, list[Record]]:
    """Directory -> what the .best_config files in it say."""
    found: dict[str, list[Record]] = {}
    for file, data in reader.each(files, "autotune results"):
        record = chosen(data)
        if record is None:
            reader.reject(file, "autotune results")
        else:
            found.setdefault(file.path.rpartition("/")[0], []).append(Record(file, record))
    return found


class Chooser:
    """Finds the winners of kernels.

    Args:
        described: path of a directory -> its metadata.
        by_hash: hash -> directory: what two modules share was compiled from one of them.
        narrow: (directories, lengths of blocks) -> those that were compiled with these.
    """

    def __init__(
        self, described: Mapping[str, Metadata], by_hash: Mapping[str, KernelDirectory], narrow: Narrow
    ) -> None:
        self._described, self._hashes, self._narrow = described, by_hash, narrow

    def choice(
        self,
        module: KernelModule,
        directories: Sequence[KernelDirectory],
        records: Sequence[Record],
        hint: str = "",
    ) -> Choice:
        """What was chosen for a kernel.

        Args:
            directories: that were compiled from its module.
            records: of the module's directory that are not known to be another module's.
            hint: hash of the directory that a graph names for it, or "".
        """
        hinted = self._hashes.get(hint)
        found = (
            self._by_hash(module, records)
            or self._fitting(module, directories, records, hinted)
            or self._given(module.source, directories, hinted)
        )
        if found:
            return found
        only = directories[0] if len(directories) == 1 else None
        if only:
            return Choice(Winner(self._options(only), "only one"), only)
        return Choice(Winner(), hinted)

    def _by_hash(self, module: KernelModule, records: Iterable[Record]) -> Choice | None:
        for file, record in records:
            directory = self._hashes.get(record.triton_hash)
            if directory and directory.name == module.function:
                return Choice(_winner(record), directory, file)
        return None

    def _fitting(
        self,
        module: KernelModule,
        directories: Sequence[KernelDirectory],
        records: Sequence[Record],
        hinted: KernelDirectory | None,
    ) -> Choice | None:
        # Coordinate descent names no directory, and a directory may be gone.
        fitting = [item for item in records if self.fits(module, directories, item.chosen)]
        if len(fitting) != 1:
            return None
        file, record = fitting[0]
        return Choice(_winner(record), self._one(self._like(directories, record.config), record.config, hinted), file)

    def fits(self, module: KernelModule, directories: Sequence[KernelDirectory], record: Chosen) -> bool:
        """True where a result that names no directory can be this kernel's."""
        known = all(name in LAUNCH_OPTIONS or name in module.parameters for name in record.config)
        return known and (not directories or bool(self._like(directories, record.config)))

    def _given(
        self, source: KernelSource | None, directories: Sequence[KernelDirectory], hinted: KernelDirectory | None
    ) -> Choice | None:
        if source is None or source.num_warps is None:
            return None
        given = {"num_warps": source.num_warps, "num_stages": source.num_stages}
        config: Config = {**source.constants, **{name: value for name, value in given.items() if value is not None}}
        how = "given" if source.type == _OWN else _TEMPLATE
        return Choice(Winner(config, how), self._one(self._like(directories, config), {}, hinted))

    def _like(self, directories: Sequence[KernelDirectory], config: Config) -> list[KernelDirectory]:
        """The directories whose metadata does not speak against a configuration."""
        return [item for item in directories if self._agrees(self._described.get(item.path), config)]

    def _agrees(self, described: Metadata | None, config: Config) -> bool:
        if described is None:
            return True
        pairs = ((described.num_warps, config.get("num_warps")), (described.num_stages, config.get("num_stages")))
        return all(has is None or wanted is None or has == wanted for has, wanted in pairs)

    def _one(
        self, directories: Sequence[KernelDirectory], config: Config, hinted: KernelDirectory | None
    ) -> KernelDirectory | None:
        if len(directories) > 1 and hinted in directories:
            return hinted
        blocks = [value for name, value in config.items() if name.endswith("BLOCK") and isinstance(value, int)]
        if len(directories) > 1 and blocks:
            directories = self._narrow(directories, blocks)
        return directories[0] if len(directories) == 1 else None

    def _options(self, directory: KernelDirectory) -> Config | None:
        described = self._described.get(directory.path)
        return None if described is None else options(described)


def _winner(record: Chosen) -> Winner:
    return Winner(record.config, "recorded", tuning_seconds=record.seconds, by_descent=record.by_descent)
