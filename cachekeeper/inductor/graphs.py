"""Entries of Inductor's and AOTAutograd's caches, read without unpickling.

A pickled entry is walked with `pickletools`, which executes nothing; what is wanted of it are strings that follow the
names of the fields that they are kept in.
Source: torch/_inductor/output_code.py, `CompiledFxGraph`; triton_bundler.py, `TritonBundle`;
torch/_functorch/_aot_autograd/aot_autograd_result.py.
"""

from __future__ import annotations

import base64
import hashlib
import pickletools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from .keys.components import INPUT
from .keys.components import components as taken_apart
from .keys.components import direction as direction_of
from .sources import dtype, kernel_source, literal, operator, tensor
from .wrappers import WrapperSource, wrapper_source

_LARGEST = 1 << 30
_FRAME = b"\x95"
_MOST_OPCODES = 4_000_000
_LONGEST = 16 << 20  # characters of a graph's code


@dataclass(frozen=True)
class GraphEntry:
    """An entry of Inductor's cache.

    Attributes:
        wrapper: name of the module that launches the kernels, as "cdwli...".
        source: the text of that module.
        components: what the key was made of, as `[hash] name: value`.
        code: the graph's code after Inductor's passes, with types; before them, without types, where there is no other.
        kernels: name of a kernel, as the wrapper calls it -> name of its directory in Triton's cache. Without those of
            which several configurations were compiled.
        device: of the kernels, as "cuda:0".
        compiled: name of a kernel, also of those that only tuning tried -> the directories of all configurations of it.
        modules: name of a kernel -> the module of its source, as "c6jix...".
        seconds: that compiling took; None where it does not say.
    """

    wrapper: str
    source: str
    components: tuple[str, ...]
    code: str
    kernels: Mapping[str, str]
    device: str
    compiled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None


class AutogradEntry(NamedTuple):
    """Keys of Inductor's cache, "f" and 51 characters, that an entry of AOTAutograd's names; "" for none."""

    forward: str
    backward: str
    inference: str


# Pickles


class _Item(NamedTuple):
    """A string, or a number; `key`: the string right before it, which for a value of a dict is its key."""

    value: str | int | float
    key: str


_STRINGS = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"))
_NUMBERS = frozenset(("LONG1", "BININT", "BININT1", "BININT2", "BINFLOAT"))
_PUT = frozenset(("BINPUT", "LONG_BINPUT"))
_GET = frozenset(("BINGET", "LONG_BINGET"))


def _items(data: bytes) -> list[_Item] | None:
    """The strings and numbers of a pickle, in order; None for what is no whole pickle."""
    if len(data) > _LARGEST or data[:1] != b"\x80" or data[-1:] != b".":
        return None
    try:
        return list(_walk(data))
    except (ValueError, Warning):  # a warning: of escapes, where the program makes errors of them
        return None


def is_torn(data: bytes) -> bool:
    """True for an entry that is damaged: it has not the ends of a pickle, or cannot be read from one to the other.

    What does not begin with a frame torch has not written, and nothing can be said of it.
    """
    if data[:1] != b"\x80" or data[-1:] != b".":
        return True
    return data[2:3] == _FRAME and len(data) <= _LARGEST and _items(data) is None


def _walk(data: bytes) -> Iterator[_Item]:
    memo: dict[int, str] = {}  # the second time, pickle only refers to a string
    memoised = 0
    key = last = name = ""
    for opcode, argument, _ in islice(pickletools.genops(data), _MOST_OPCODES):
        name = opcode.name
        if name == "MEMOIZE" or name in _PUT:
            if last:
                memo[memoised if name == "MEMOIZE" else int(argument or 0)] = last
            memoised += 1
            last = ""
        elif name != "FRAME":
            value = memo.get(int(argument or 0), "") if name in _GET else argument
            last = value if isinstance(value, str) and (name in _STRINGS or name in _GET) else ""
            if value is not None and (last or name in _STRINGS or name in _NUMBERS):
                yield _Item(value, key)
            key = last
    if name != "STOP":
        raise ValueError("too many opcodes")


def _strings(items: Iterable[_Item]) -> Iterator[str]:
    return (item.value for item in items if isinstance(item.value, str))


# Entries

_MODULE = re.compile(r"c[a-z2-7]{51}")
_KEY = re.compile(r"f[a-z2-7]{51}")
_COMPONENT = re.compile(r"\[\w+\] [^:\n]+: ")
_DIRECTORY = re.compile(r"[A-Z2-7]{52}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_METADATA = re.compile(r"(?!__grp__)(\w+)\.json")
_TASK = re.compile(r"torch\._inductor\.runtime\.compile_tasks\.(c[a-z2-7]{51})\.\w+")


def graph_entry(data: bytes) -> GraphEntry | None:
    """Read an entry of Inductor's cache (`fxgraph/xx/KEY/...`); None for what is none."""
    items = _items(data)
    if items is None:
        return None
    wanted = _values(items)
    source = wanted.get("source_code")
    if not isinstance(source, str):
        return None
    wrapper, nanoseconds = wanted.get("cache_key"), wanted.get("_time_taken_ns")
    lines = tuple(filter(_is_component, _strings(items)))
    code = wanted.get("inductor_post_grad_graph_str")
    known = wrapper_source(source)
    kernels, modules = _kernels(items)
    kernels.update(_own(known, kernels) if known else {})
    return GraphEntry(
        wrapper=wrapper if isinstance(wrapper, str) and _MODULE.fullmatch(wrapper) else "",
        source=source,
        components=lines,
        code=code if isinstance(code, str) and "def forward" in code else _whole_code(lines),
        kernels={
            name: hashes[0]
            for name, hashes in kernels.items()
            if len(hashes) == 1 and (not known or name in known.kernels)
        },
        device=known.device if known else "",
        compiled=kernels,
        modules={**(known.kernels if known else {}), **modules},
        seconds=nanoseconds / 1e9 if isinstance(nanoseconds, int) else None,
    )


_FIELDS = frozenset(("source_code", "cache_key", "_time_taken_ns", "inductor_post_grad_graph_str"))


def _values(items: Iterable[_Item]) -> dict[str, str | int | float]:
    """The first value of each field that is wanted."""
    found: dict[str, str | int | float] = {}
    for item in items:
        if item.key in _FIELDS:
            found.setdefault(item.key, item.value)
    return found


def _kernels(items: Iterable[_Item]) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """(name -> directories, name -> module) of the kernels that an entry carries.

    The bundle lists directories with their files. The autotuners after it say a kernel's name, its module, and the
    digests of what was compiled: these are the directories' names, written otherwise.
    """
    bundled: dict[str, dict[str, None]] = defaultdict(dict)
    tuned: dict[str, dict[str, None]] = defaultdict(dict)
    modules: dict[str, str] = {}
    directories: set[str] = set()
    directory = name = ""
    for item in items:
        text = item.value
        if not isinstance(text, str):
            continue
        if len(text) == 52 and _DIRECTORY.fullmatch(text):
            directory = text
            directories.add(text)
        elif directory and text.endswith(".json") and (metadata := _METADATA.fullmatch(text)):
            bundled[metadata[1]][directory] = None
        elif item.key == "kernel_name":
            name = text
        elif name and text.startswith("torch._inductor") and (task := _TASK.fullmatch(text)):
            modules.setdefault(name, task[1])
        elif name and len(text) == 64 and _DIGEST.fullmatch(text) and (known := directory_name(text)) in directories:
            tuned[name][known] = None
    return {name: tuple(hashes) for name, hashes in {**bundled, **tuned}.items()}, modules


def _own(wrapper: WrapperSource, kernels: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Directories of the job's own kernels: what is "softcap" to Triton, a wrapper calls "softcap_0"."""
    found = {}
    for name, source in wrapper.sources.items():
        kernel = kernel_source(source) if name not in kernels and wrapper.languages[name] == "triton" else None
        if kernel and kernel.name in kernels:
            found[name] = kernels[kernel.name]
    return found


def _is_component(text: str) -> bool:
    return text[:1] == "[" and _COMPONENT.match(text) is not None


def directory_name(digest: str) -> str:
    """The directory that Triton keeps a kernel in, from the hexadecimal hash in its metadata (runtime/cache.py)."""
    return base64.b32encode(bytes.fromhex(digest)).decode().rstrip("=")


def autograd_entry(data: bytes) -> AutogradEntry | None:
    """Read an entry of AOTAutograd's cache (`aotautograd/KEY/...`); None for what is none, or names no graph."""
    items = _items(data)
    if items is None:
        return None
    graphs: dict[str, list[str]] = {}
    own: list[str] = []
    for text in _strings(items):
        if _KEY.fullmatch(text):
            own = graphs.setdefault(text, [])
        elif _is_component(text):
            own.append(text)
    found: dict[str, str] = {}
    for key, lines in graphs.items():
        default = "backward" if found else "forward"
        found.setdefault(direction_of(lines) or default, key)
    return AutogradEntry(*(found.get(name, "") for name in AutogradEntry._fields)) if found else None


# Code

_WHOLE = "# To see more debug info, please use `graph_module.print_readable()`"
_CODE = re.compile(r"""'_code': ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", re.DOTALL)
_LAST = 1 << 20  # characters that the last statement, which names every output, may take
_SUBGRAPH = " = self."
_CLASS = re.compile(r"^[ \t]+class \w+\(", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_ANNOTATION = re.compile(r'(?<=\w)(?: ?): "[^"\n]*"')
_STATEMENT = re.compile(r"([A-Za-z_]\w*) = (.+)")
_WORD = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*")
_NOISE = re.compile(r"\b((?:kernel|constant_args)_idx = )\d+|\b(?:torch\.)?device\(type='\w+'(?:, index=\d+)?\)")
_TARGET = re.compile(r"(?<![\w.])torch\.ops\.([\w.]+)\(")
_TYPED = re.compile(r'\b\w+: "([^"\n]*)"')
_TYPE = re.compile(r"(\w+)(\[[^\[\]]*\])(\[[^\[\]]*\])?")
_OF_INPUT = re.compile(r"TensorMetadata\(dtype=([\w.]+), shape=torch\.Size\(\[([^\]]*)\]\), stride=\(([^()]*)\)")
_SYMBOL = re.compile(r"\b[su]_?\d+\b")
_OPEN = re.compile(r"\('(\w+)',\)")
_KERNEL = "user_defined_triton_source"


def operations(components: Iterable[str], code: str = "") -> dict[str, int]:
    """How many operators a graph has, by name, as {"aten.mm": 3}.

    They are those before Inductor's passes, without those of subgraphs, where the components tell.

    Args:
        components: of the graph's key; those of telemetry, which torch cuts, count as none.
        code: of a `GraphEntry`.
    """
    found = Counter(operator(match[1]) for match in _TARGET.finditer(_whole_code(components) or code))
    return dict(sorted(found.items()))


def inputs(components: Iterable[str], code: str = "") -> tuple[str, ...]:
    """A graph's inputs in order, as "bf16[8, 512][512, 1]": type, sizes, strides; a size by its symbol.

    Args:
        components, code: as for `operations`.
    """
    own = taken_apart(line for line in components if "example_inputs[" in line[:90])
    found = {int(match[1]): own[name].value for name in own if (match := INPUT.fullmatch(name)) and len(match[1]) < 7}
    if found:
        return tuple(_described(found[number]) for number in sorted(found))
    return tuple(_typed(text) for text in _TYPED.findall(_signature(code[:_LONGEST])))


def _described(value: str) -> str:
    if match := _OF_INPUT.match(value):
        return f"{tensor(match[1], match[2])}[{match[3].rstrip(',')}]"
    match = _OPEN.fullmatch(value)
    return match[1] if match else value[:60]


def _typed(text: str) -> str:
    if match := _TYPE.match(text):
        return f"{dtype(match[1])}{match[2]}{match[3] or ''}"
    return text.removeprefix("Sym(").removesuffix(")")


def _signature(code: str) -> str:
    return code.partition("def forward(self")[2].partition("\n")[0]


def content(direction: str, components: Sequence[str], code: str = "") -> str:
    """A hash of what a graph computes: the same for the same operations, inputs and direction.

    Names of variables, devices, settings and the launch options of the job's own kernels do not count; the source of
    these kernels does, and so do sizes and strides. Made from the graph as Inductor was given it, if the components
    hold it whole, with subgraphs (of attention) from its code; else from its code after Inductor's passes, which some
    settings change.

    Args:
        direction: "forward", "backward", "inference", or "".
        components: of the graph's key.
        code: of a `GraphEntry`.

    Returns:
        32 hexadecimal digits; "" where neither components nor code tell the operations.
    """
    statements = [line for graph in _graphs(components, code[:_LONGEST]) for line in _normalised(graph)]
    if not statements:
        return ""
    symbols: dict[str, str] = {}
    given = _SYMBOL.sub(
        lambda match: symbols.setdefault(match[0], f"s{len(symbols)}"), "\n".join(inputs(components, code))
    )
    parts = [direction, given, *_own_kernels(components), *statements]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _graphs(components: Iterable[str], code: str) -> list[str]:
    """The text of the graph and of its subgraphs; empty where one of them is not known."""
    own = _whole_code(components)
    if not own or _SUBGRAPH not in own:
        return [own or code]
    subgraphs = _CLASS.search(code)
    return [own, code[subgraphs.start() :]] if subgraphs else [own] if code else []


def _whole_code(components: Iterable[str]) -> str:
    """The code that the key was made from; "" where torch cut it.

    A graph is listed as it prints itself, or, if it is of the very class that the pickler knows, by its attributes.
    """
    line = next((line for line in components if "] gm: " in line[:90]), "")
    if len(line) > _LONGEST:
        return ""
    if match := _CODE.search(line):
        code = literal(match[1], _LONGEST)
        return code if isinstance(code, str) and "\n    return" in code[-_LAST:] else ""
    return line if _WHOLE in line[-200:] else ""


def _own_kernels(components: Iterable[str]) -> list[str]:
    """Sources and constants of the Triton kernels that the job brings, without their launch options."""
    found = []
    for line in components:
        name, _, value = line.partition("] ")[2].partition(": ")
        if name.startswith(_KERNEL):
            parts = literal(value)
            found.append(repr(parts[:2]) if isinstance(parts, tuple) else value)
    return found


def _normalised(code: str) -> Iterator[str]:
    """The statements of the graphs in a text, with names numbered in the order in which they are set."""
    plain = _NOISE.sub(lambda match: match[1] or "device", _ANNOTATION.sub("", _COMMENT.sub("", code)))
    for graph in plain.split("def forward(self")[1:]:
        arguments, _, body = graph.partition("\n")
        numbers: dict[str, str] = {}
        for name in _WORD.findall(arguments):
            numbers.setdefault(name, f"v{len(numbers)}")
        yield f"graph of {len(numbers)}"
        for statement in re.split(r"[;\n]", body):
            yield from _statement(statement.strip(), numbers)


def _statement(statement: str, numbers: dict[str, str]) -> Iterator[str]:
    if statement.endswith("= None") or not (statement.startswith("return") or " = " in statement):
        return  # frees a variable, or is the head of another class
    match = _STATEMENT.fullmatch(statement)
    expression = match[2] if match else statement
    yield _WORD.sub(lambda word: numbers.get(word[0], word[0]), expression)
    if match:
        numbers[match[1]] = f"v{len(numbers)}"
