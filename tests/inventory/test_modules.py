"""Of many wrappers only the kernels, direction and device are told: the same as when all of each is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachekeeper.inductor.wrappers import WrapperSource, wrapper_source
from cachekeeper.inventory import listing as listings
from cachekeeper.inventory.budget import Reader
from cachekeeper.inventory.listing import listing
from cachekeeper.inventory.modules import Modules, read_modules
from cachekeeper.inventory.reading import inventory

from .caches import ADD, GOLDEN, TEMPLATE, WRAPPER, WRAPPER_MODULE, WRAPPER_TEXT, MemoryTree, gpu_cache, place

WRAPPERS = sorted(path for path in (GOLDEN / "sources").glob("*wrapper*.txt"))


@pytest.fixture(autouse=True)
def no_cache_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "_FEW_GRAPHS", -1)


def read(files: dict[str, bytes], full: bool = False) -> Modules:
    tree = MemoryTree(files)
    return read_modules(listing(tree.files), Reader(tree, None), frozenset(), full)


def of_one(text: str, **others: bytes) -> WrapperSource:
    return read({place(WRAPPER_MODULE): text.encode()} | others).wrappers[WRAPPER_MODULE]


def told(wrapper: WrapperSource) -> tuple[object, ...]:
    return wrapper.direction, wrapper.device, wrapper.kernels, wrapper.sources, wrapper.languages


@pytest.mark.parametrize("path", WRAPPERS, ids=lambda path: path.name)
def test_real_wrappers_tell_the_same(path: Path):
    whole = wrapper_source(path.read_text())
    assert whole
    assert told(of_one(path.read_text())) == told(whole)


def test_only_the_kernels_are_told_of_many_until_somebody_asks():
    modules = read(gpu_cache())
    assert modules.wrappers[WRAPPER_MODULE].inputs == ()
    modules.complete(WRAPPER_MODULE)
    assert modules.wrappers[WRAPPER_MODULE] == WRAPPER
    assert WRAPPER
    assert WRAPPER.inputs


def test_a_comment_that_names_another_module_is_not_believed():
    assert WRAPPER
    module, other = WRAPPER.kernels[ADD], WRAPPER.kernels[TEMPLATE]
    text = WRAPPER_TEXT.replace(f"/{module}.py", f"/{other}.py")
    assert text != WRAPPER_TEXT
    found = read(gpu_cache() | {place(WRAPPER_MODULE): text.encode()}).wrappers[WRAPPER_MODULE]
    assert dict(found.kernels) == dict(WRAPPER.kernels)


@pytest.mark.parametrize(
    "change",
    [
        ("\n    tmp0 = ", "\n    '\\n'\n    tmp0 = "),  # a source that is to be unescaped
        (" = async_compile.triton(", " = async_compile.triton(\n"),
        ("torch.cuda._DeviceGuard(0)", "torch.cuda._DeviceGuard(1)"),
        ("torch.cuda._DeviceGuard(0)", "nothing"),
        ("'''", '"""'),
    ],
    ids=["escape", "other line", "other device", "no device", "other quotes"],
)
def test_what_is_written_in_another_way_is_read_as_a_whole(change: tuple[str, str]):
    text = WRAPPER_TEXT.replace(*change)
    whole = wrapper_source(text)
    assert whole
    assert text != WRAPPER_TEXT
    assert told(of_one(text))[:3] == told(whole)[:3]


def test_the_inventory_of_a_small_cache_is_the_same_the_fast_way(monkeypatch: pytest.MonkeyPatch):
    files = gpu_cache()
    del files[place(WRAPPER.kernels[ADD])]  # its source is in the wrapper alone  # type: ignore[union-attr]
    fast = inventory(MemoryTree(files))
    whole = inventory(MemoryTree(files), full=True)
    monkeypatch.undo()
    assert fast == whole == inventory(MemoryTree(files))
    assert len(fast.kernels) == 5
    assert fast.graphs[0].inputs


def test_without_entries_of_graphs_wrappers_tell_as_much():
    files = {path: data for path, data in gpu_cache().items() if not path.startswith("fxgraph")}
    fast, whole = inventory(MemoryTree(files)), inventory(MemoryTree(files), full=True)
    assert fast == whole
    assert all(kernel.source for kernel in fast.kernels)
