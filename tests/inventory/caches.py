"""A small cache of one graph on a GPU, put together from real files; and a tree of files in memory."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path

from cachekeeper.inductor import classify
from cachekeeper.inductor.sources import module_name
from cachekeeper.inductor.wrappers import wrapper_source
from cachekeeper.inventory.tree import TreeFile

GOLDEN = Path(__file__).parents[1] / "golden"
WRAPPER_TEXT = (GOLDEN / "sources" / "forward-wrapper.txt").read_text()
WRAPPER = wrapper_source(WRAPPER_TEXT)
WRAPPER_MODULE = module_name(WRAPPER_TEXT)
KEY = "f" + "graph" * 10 + "a"
AUTOGRAD_KEY = "a" + "owner" * 10 + "a"
ADD, GELU, NORM = "triton_poi_fused_add_view_2", "triton_poi_fused_gelu_view_3", "triton_per_fused_native_layer_norm_0"
TEMPLATE, OWN = "triton_tem_fused_flex_attention_permute_select_view_1", "softcap_0"
COMPONENTS = ("[abc] fx_kwargs[is_backward]: False", "[abc] fx_kwargs[is_inference]: False", "[abc] cache_key_tag: ")
FIRST, SECOND, THIRD = "A" * 52, "B" * 52, "C" * 52


def module_of(kernel: str) -> str:
    assert WRAPPER
    return WRAPPER.kernels[kernel]


def place(module: str) -> str:
    return f"{module[1:3]}/{module}.py"


def graph_pickle(wrapper: str, text: str, components: Iterable[str] = COMPONENTS) -> bytes:
    """What a reader wants of an entry of Inductor's cache, pickled as torch does: field, value, field, value."""
    fields = {"cache_key": wrapper, "source_code": text, "_time_taken_ns": 2_500_000_000}
    return pickle.dumps([fields, list(components)], protocol=4)


def compiled(hash_: str, name: str, module: str, warps: int = 4, cubin: str = "add") -> dict[str, bytes]:
    """A directory of Triton's cache."""
    described = json.loads((GOLDEN / "kernels" / "add.json").read_bytes())
    described |= {"name": name, "num_warps": warps}
    files = {
        "json": json.dumps(described).encode(),
        "ttir": f'#loc = loc("/cache/{place(module)}":18:0)\nmodule {{}}\n'.encode(),
        "ptx": (GOLDEN / "kernels" / "add.ptx").read_bytes(),
        "cubin": (GOLDEN / "kernels" / f"{cubin}.cubin").read_bytes(),
    }
    return {f"triton/0/{hash_}/{name}.{suffix}": data for suffix, data in files.items()}


def best_config(directory: str, number: int = 0, **config: object) -> dict[str, bytes]:
    """A result of autotuning in a directory of modules."""
    defaults = {"num_stages": 1, "found_by_coordesc": False, "time_taken_ms": 40, "configs_hash": "0"}
    return {f"{directory}/{number:064x}.best_config": json.dumps({**defaults, **config}).encode()}


def gpu_cache() -> dict[str, bytes]:
    """Path -> bytes. Of the kernels, ADD was autotuned between two configurations; OWN was compiled once."""
    assert WRAPPER
    modules = {place(WRAPPER.kernels[name]): text.encode() for name, text in WRAPPER.sources.items()}
    return {
        **modules,
        place(WRAPPER_MODULE): WRAPPER_TEXT.encode(),
        f"fxgraph/gr/{KEY}/entry": graph_pickle(WRAPPER_MODULE, WRAPPER_TEXT),
        f"aotautograd/{AUTOGRAD_KEY}/entry": pickle.dumps([KEY], protocol=4),
        # The driver calls the entry of these cubins by the name of the kernel that they were made from.
        **compiled(FIRST, ADD, module_of(ADD), warps=4),
        **compiled(SECOND, ADD, module_of(ADD), warps=8),
        **compiled(THIRD, "softcap", module_of(OWN), warps=8),
        **best_config(module_of(ADD)[1:3], XBLOCK=512, num_warps=8, triton_cache_hash=SECOND),
    }


def write_files(directory: Path, files: Mapping[str, bytes]) -> Path:
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    return directory


class MemoryTree:
    """Files in memory as a tree; `asked` are the paths that were read."""

    label = "memory"

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._contents = contents
        self.asked: list[str] = []
        found = []
        for path, data in sorted(contents.items()):
            where = classify(path)
            assert where, path
            found.append(TreeFile(path, where.kind, where.entry, len(data), str(hash(data))))
        self.files = tuple(found)

    def read(self, paths: Iterable[str], progress: object = None) -> Mapping[str, bytes]:
        wanted = list(paths)
        self.asked += wanted
        return {path: self._contents[path] for path in wanted}

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    @property
    def lost(self) -> frozenset[str]:
        return frozenset()
