"""What a cache holds: its graphs, the kernels that they launch, and what was chosen for them. Frozen values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Config = Mapping[str, int | float | bool | str]


@dataclass(frozen=True)
class Binary:
    """A compiled Triton kernel: one directory of Triton's cache.

    Attributes:
        hash: the directory's name.
        bytes: of all its files, without that which only lists them by absolute path.
        target: what it was built for, as "cuda:90"; "" where that is not known.
        num_warps, num_stages, num_ctas: as compiled; None where its metadata does not say.
        dynamic_shared: bytes of shared memory that a launch asks for.
        static_shared: bytes of shared memory of the code itself; None: no cubin, or one that cannot be read.
        registers: a thread.
        local_bytes: of local memory a thread, which registers were spilled to; 0: none.
        code_bytes: of machine code.
        ptx_bytes, cubin_bytes: lengths of the files, 0 where there is none.
        mix: class of instruction -> how many stand in the PTX ("tensor", "global load", ...; see inductor.ptx);
            None where the PTX was not read.
        tools: what built it, as "ptxas 13.0.88 -lineinfo -arch sm_90a"; "" where it does not say.
        code: the first 12 hexadecimal digits of the SHA-256 of its machine code; "damaged" for a cubin that cannot be
            parsed; "" where it was not read.
    """

    hash: str
    bytes: int = 0
    target: str = ""
    num_warps: int | None = None
    num_stages: int | None = None
    num_ctas: int | None = None
    dynamic_shared: int | None = None
    static_shared: int | None = None
    registers: int | None = None
    local_bytes: int | None = None
    code_bytes: int | None = None
    ptx_bytes: int = 0
    cubin_bytes: int = 0
    mix: Mapping[str, int] | None = None
    tools: str = ""
    code: str = ""


@dataclass(frozen=True)
class Winner:
    """What autotuning chose for a kernel.

    Attributes:
        config: as {"XBLOCK": 1024, "num_warps": 4, "num_stages": 1}; None: no choice is recorded.
        how: "recorded" (a .best_config, or what Triton's own autotuner keeps), "template" (constants of a chosen GEMM
            or attention template), "given" (by the job itself), "only one" (there was nothing to choose), or "" with
            no choice recorded.
        milliseconds: of a call, as autotuning measured; None where that is not recorded. Inductor records none: only
            Triton's own autotuner does, for kernels that no graph holds.
        tuning_seconds: that choosing took; None where that is not recorded.
        by_descent: found by coordinate descent.
    """

    config: Config | None = None
    how: str = ""
    milliseconds: float | None = None
    tuning_seconds: float | None = None
    by_descent: bool = False


@dataclass(frozen=True)
class Kernel:
    """A kernel that graphs launch, or that is in the cache without one.

    Attributes:
        name: as "triton_poi_fused_add_view_2".
        module: name of the module that holds its source, as "c6jix..."; "" where there is none.
        type: "pointwise", "reduction", "persistent_reduction", "template", "user_autotune" and so on, as torch names
            its heuristics; "triton" for one that no module of Inductor holds, "cpp" for one in C++.
        source: of the kernel's function alone, in Triton's Python or C++; "" where it was not read.
        graphs: keys of the graphs that launch it, sorted.
        device: as "cuda:0"; "" where that is not known.
        size_hints: as {"x": 256, "r0_": 32}.
        winner: what was chosen.
        binary: what the winner was compiled to; None: not in the cache, or which one it is cannot be told.
        compiled: number of directories of Triton's cache that were compiled from its module.
        vector_bits: of C++: width of the vectors that its source uses; 0: scalar; None: not known, or not C++.
        flags: of C++: the compiler's flags that change the code, as ("-O3", "-march=native"); empty: not known.
        bytes: of everything that belongs to it.
        built: whether there is what it was compiled to, a directory of Triton's cache with a cubin or a library:
            "there"; "gone"; "damaged" for a library that is no ELF file; "" where that is not known.
        code: of C++: the same as that of a `Binary`, of its library.
        read: False where nothing of it was looked into, to be quick.
    """

    name: str
    module: str = ""
    type: str = ""
    source: str = ""
    graphs: tuple[str, ...] = ()
    device: str = ""
    size_hints: Mapping[str, int] = field(default_factory=dict)
    winner: Winner = Winner()
    binary: Binary | None = None
    compiled: int = 0
    vector_bits: int | None = None
    flags: tuple[str, ...] = ()
    bytes: int = 0
    built: str = ""
    code: str = ""
    read: bool = True


@dataclass(frozen=True)
class Graph:
    """An entry of Inductor's cache.

    Attributes:
        key: "f" and 51 characters.
        direction: "forward", "backward", "inference"; "" where that is not known.
        device: of the kernels, as "cuda:0"; "" where that is not known.
        function: what was compiled, as "forward (model.py:12)"; "" without telemetry.
        inputs: as "bf16[8, 512, 256]", in order.
        content: a hash of operations, inputs and direction that does not depend on settings or devices; "": not known.
        components: what the key was made of, a line each; 600 of them, mostly alike, and so not in JSON.
        operations: number of operators by name, as {"aten.mm": 3}.
        calls: how often the graph calls what is not a kernel of its own, as {"extern_kernels.mm": 4}.
        kernels: names of those that it launches, in order, each as often as it is launched.
        wrapper: name of the module that launches them.
        seconds: that compiling it took; None where nobody told.
        variants: number of guarded variants under the key.
        bytes: of the entry.
        entry: key of an entry of AOTAutograd's cache that names this graph, or "".
    """

    key: str
    direction: str = ""
    device: str = ""
    function: str = ""
    inputs: tuple[str, ...] = ()
    content: str = ""
    components: tuple[str, ...] = field(default=(), metadata={"json": False})
    operations: Mapping[str, int] = field(default_factory=dict)
    calls: Mapping[str, int] = field(default_factory=dict)
    kernels: tuple[str, ...] = ()
    wrapper: str = ""
    seconds: float | None = None
    variants: int = 1
    bytes: int = 0
    entry: str = ""


@dataclass(frozen=True)
class Option:
    """One of the ways to do a product, as autotuning measured it.

    Attributes:
        name: as "triton_mm BLOCK_M=64 BLOCK_N=128 BLOCK_K=32 num_warps=4 num_stages=3", or "mm" for the library's.
        milliseconds: of a call; None for one that failed.
    """

    name: str
    milliseconds: float | None


@dataclass(frozen=True)
class Product:
    """What max-autotune measured for one matrix product (or convolution, and so on).

    Attributes:
        operation: as "mm".
        inputs: as "bf16[4096, 256] x bf16[256, 1024]".
        precision: as "highest".
        options: fastest first, failed ones last.
    """

    operation: str
    inputs: str
    precision: str
    options: tuple[Option, ...]

    @property
    def best(self) -> Option | None:
        """The fastest; None where nothing was measured."""
        return self.options[0] if self.options and self.options[0].milliseconds is not None else None


@dataclass(frozen=True)
class Coverage:
    """What there is for one device.

    Attributes:
        device: as "cuda:0"; "" for what cannot be told.
        forward, backward, inference, unknown: number of graphs.
        kernels: that these graphs launch.
    """

    device: str
    forward: int = 0
    backward: int = 0
    inference: int = 0
    unknown: int = 0
    kernels: int = 0


@dataclass(frozen=True)
class Inventory:
    """What one cache holds, as far as it was read.

    Attributes:
        graphs, kernels, products: sorted by key, name and operation. Kernels that only autotuning tried are not among
            them; `tried` is their number.
        coverage: a row a device, sorted.
        entries, bytes: kind -> number of entries, and of bytes.
        triton_dirs: directory of kernels -> number of entries.
        notes: what was not read, and why; a sentence each.
        unread: number of files that could not be read or parsed: they are damaged, or gone. Without those that were
            left out to be quick.
    """

    graphs: tuple[Graph, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    products: tuple[Product, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    entries: Mapping[str, int] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    triton_dirs: Mapping[str, int] = field(default_factory=dict)
    tried: int = 0
    notes: tuple[str, ...] = ()
    unread: int = 0
