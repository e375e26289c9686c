"""What differs between two builds of one kernel, and what follows from it for the speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..inventory.directories import DAMAGED, GONE, THERE
from ..inventory.models import Binary, Kernel, Winner
from ..units import count, format_bytes
from .models import Change
from .occupancy import REGISTERS, Occupancy, occupancy

# Two measurements of one kernel differ by so much, or by so many milliseconds, without a cause.
NOISE = 0.05
_NOISE_MS = 0.0005
_LARGE = 0.10
_MOST_CLASSES = 6
_NOT_SET = "not set"
_DEVICE = "device"
_UNTUNED = "no recorded choice"
_OTHER_CODE = "the same key, other code: one of the two is damaged, or was built by other tools"
_NO_ELF = "no ELF file"
_NO_FMA = ("-O0", "-O1")

TIME, SPILLS, TENSOR, REGISTERS_NAME = "time", "spills", "tensor instructions", "registers"
VECTORS, DYNAMIC, STATIC, SOURCE = "vector width", "dynamic shared memory", "static shared memory", "source"
CODE, BINARY, LIBRARY = "machine code", "binary", "library"
LAUNCH = ("num_warps", "num_stages", "num_ctas")


def changes(a: Kernel, b: Kernel, source: bool) -> tuple[Change, ...]:
    """What differs, most telling first.

    Args:
        source: whether the two sources differ.
    """
    found = [*_time(a.winner, b.winner), *_presence(a, b), *_of_binaries(a, b), *_of_cpp(a, b), *_of_winners(a, b)]
    found += _of_kernels(a, b)
    if source:
        one, other = (count(side.source.count("\n") + 1, "line") for side in (a, b))
        found.append(Change(SOURCE, one, other))
    # The same kernel for another device alone is the same; that of its graph is said with the graph.
    if found and all(change.name == _DEVICE for change in found):
        return ()
    return tuple(sorted(found, key=_rank))


def effect(found: Sequence[Change]) -> str:
    """Of all changes together: what was measured decides; else "mixed" where one does harm and another good."""
    measured = [change for change in found if change.name == TIME]
    effects = {change.effect for change in measured or found} - {""}
    return effects.pop() if len(effects) == 1 else "mixed" if effects else ""


def of_times(a: float, b: float) -> str:
    """ "slower" or "faster" for milliseconds that differ by more than a measurement does; else ""."""
    if not (a > 0 and b > 0) or abs(a - b) <= max(NOISE * max(a, b), _NOISE_MS):
        return ""
    return "slower" if b > a else "faster"


def in_ms(milliseconds: float) -> str:
    """0.0205 -> "0.0205 ms"."""
    return f"{milliseconds:.4g} ms"


_STATE = (CODE, BINARY, LIBRARY)
_ORDER = {
    name: number
    for number, name in enumerate((TIME, SPILLS, TENSOR, VECTORS, REGISTERS_NAME, DYNAMIC, STATIC, *_STATE, *LAUNCH))
}


def _rank(change: Change) -> tuple[bool, int]:
    return not change.effect, _ORDER.get(change.name, len(_ORDER))


def _time(a: Winner, b: Winner) -> Iterator[Change]:
    one, other = a.milliseconds, b.milliseconds
    if one is None or other is None:
        return
    same = a.config == b.config
    found = of_times(one, other)
    if found or not same:
        words = "as autotuning measured it" + ("" if found else ": no more than two measurements differ by")
        yield Change(TIME, in_ms(one), in_ms(other), found, words)


# The choice


def _of_winners(a: Kernel, b: Kernel) -> Iterator[Change]:
    one, other = a.winner, b.winner
    if one.config is not None and other.config is not None:
        if one.config != other.config:
            yield from _fields(one.config, other.config)
        if one.how != other.how and one.how and other.how:
            yield Change("choice", one.how, other.how)
        if one.by_descent != other.by_descent:
            yield Change("coordinate descent", *("yes" if side.by_descent else "no" for side in (one, other)))
    elif (one.config is None) != (other.config is None):
        yield Change("choice", *(_UNTUNED if side.config is None else side.how or "recorded" for side in (one, other)))
    yield from _launch(a, b)


def is_choice_lost(change: Change) -> bool:
    """True where a has a choice and b has none."""
    return change.name == "choice" and change.b == _UNTUNED


def _fields(one: Mapping[str, object], other: Mapping[str, object]) -> Iterator[Change]:
    for name in sorted({*one, *other}):
        before, after = (str(side[name]) if name in side else _NOT_SET for side in (one, other))
        if before != after and one.get(name) != other.get(name):
            yield Change(name, before, after)


def _launch(a: Kernel, b: Kernel) -> Iterator[Change]:
    """Of the binaries, where the choices do not say."""
    if a.binary is None or b.binary is None:
        return
    chosen = {*(a.winner.config or ()), *(b.winner.config or ())} if a.winner.config and b.winner.config else set()
    for name in LAUNCH:
        one, other = getattr(a.binary, name), getattr(b.binary, name)
        if name not in chosen and None not in (one, other) and one != other:
            yield Change(name, str(one), str(other))


def _of_kernels(a: Kernel, b: Kernel) -> Iterator[Change]:
    for name in ("type", _DEVICE):
        one, other = getattr(a, name), getattr(b, name)
        if one and other and one != other:
            yield Change(name, one, other)
    if a.size_hints and b.size_hints and dict(a.size_hints) != dict(b.size_hints):
        yield Change("size hints", *(", ".join(f"{k}={v}" for k, v in side.size_hints.items()) for side in (a, b)))


# C++


def _of_cpp(a: Kernel, b: Kernel) -> Iterator[Change]:
    one, other = a.vector_bits, b.vector_bits
    if one is not None and other is not None and one != other:
        words = "" if one and other else "scalar code"
        yield Change(VECTORS, _bits(one), _bits(other), "slower" if other < one else "faster", words)
    if a.module == b.module:
        yield from _other_code(a.code, b.code)
    if a.flags and b.flags and set(a.flags) != set(b.flags):
        before, after = (_without(*pair) for pair in ((a.flags, b.flags), (b.flags, a.flags)))
        weak = [any(flag in _NO_FMA for flag in side.flags) for side in (a, b)]
        found = "" if weak[0] == weak[1] else "slower" if weak[1] else "faster"
        yield Change("flags", before, after, found, "less is optimised" if found == "slower" else "")


def _bits(bits: int) -> str:
    return f"{bits} bits" if bits else "scalar"


def _without(flags: Sequence[str], others: Sequence[str]) -> str:
    known = set(others)
    return " ".join(flag for flag in flags if flag not in known) or "nothing"


# The binaries


def _presence(a: Kernel, b: Kernel) -> Iterator[Change]:
    """Is there what the kernel was compiled to, on one side or on both."""
    if not (a.built and b.built) or a.built == b.built:
        return
    words = "built again at the next start" if b.built == GONE else ""
    one, other = (_NO_ELF if side.built == DAMAGED else side.built for side in (a, b))
    yield Change(LIBRARY if "cpp" in (a.type, b.type) else BINARY, one, other, words=words)


def is_gone(change: Change) -> bool:
    """True where a has what a kernel was compiled to, and b has it no more."""
    return change.name in (BINARY, LIBRARY) and change.a == THERE and change.b == GONE


def is_other_code(change: Change) -> bool:
    """True where what stands under one key is not the same code, or none at all on one side."""
    if change.name in (BINARY, LIBRARY):
        return GONE not in (change.a, change.b)
    return change.name == CODE and change.words == _OTHER_CODE


def is_rekeyed(a: Kernel, b: Kernel) -> bool:
    """True for the same machine code under two keys of Triton's cache."""
    one, other = a.binary, b.binary
    if one is None or other is None or one.code in ("", DAMAGED):
        return False
    return one.code == other.code and bool(one.hash and other.hash) and one.hash != other.hash


def _other_code(a: str, b: str) -> Iterator[Change]:
    if a and b and a != b:
        yield Change(CODE, a, b, words=_OTHER_CODE)


def _of_binaries(kernel: Kernel, other: Kernel) -> Iterator[Change]:
    a, b = kernel.binary, other.binary
    if a is None or b is None:
        return
    same_key = a.hash == b.hash and bool(a.hash)
    if same_key and a.code == b.code:
        return
    # Another tile takes other resources, and does other work with them: nothing follows for the speed.
    alike = kernel.winner.config == other.winner.config and a.num_warps == b.num_warps
    found = [*_spills(a, b), *_tensor(a, b), *_occupied(a, b, alike), *_mix(a.mix, b.mix)]
    for name in ("target", "tools"):
        before, after = getattr(a, name), getattr(b, name)
        if before and after and before != after:
            found.append(Change(name, before, after))
    yield from found
    if same_key:
        yield from _other_code(a.code, b.code)
    elif DAMAGED in (a.code, b.code) and a.code != b.code and a.code and b.code:
        yield Change(CODE, a.code, b.code)
    else:
        yield from _sizes(a, b, bool(found))


def _spills(a: Binary, b: Binary) -> Iterator[Change]:
    one, other = a.local_bytes, b.local_bytes
    if one is not None and other is not None and one != other:
        words = "of local memory a thread, which registers are spilled to"
        yield Change(SPILLS, _bytes(one), _bytes(other), "slower" if other > one else "faster", words)


def _bytes(number: int) -> str:
    return f"{number:,} bytes" if number else "none"


def _tensor(a: Binary, b: Binary) -> Iterator[Change]:
    if a.mix is None or b.mix is None:
        return
    one, other = (side.get("tensor", 0) for side in (a.mix, b.mix))
    if one != other:
        found = "" if one and other else "faster" if other else "slower"
        words = {"slower": "products run without tensor cores", "faster": "products run on tensor cores"}.get(found, "")
        yield Change(TENSOR, f"{one:,}", f"{other:,}", found, words)


def _occupied(a: Binary, b: Binary, alike: bool) -> Iterator[Change]:
    one, other = (occupancy(a), occupancy(b)) if alike else (None, None)
    if a.registers is not None and b.registers is not None and a.registers != b.registers:
        found, words = _across(one, other, "registers", b.registers - a.registers, f"of {REGISTERS:,} registers")
        yield Change(REGISTERS_NAME, str(a.registers), str(b.registers), found, words)
    for name, field in ((DYNAMIC, "dynamic_shared"), (STATIC, "static_shared")):
        before, after = getattr(a, field), getattr(b, field)
        if before is not None and after is not None and before != after:
            found, words = _across(one, other, "shared memory", after - before, "of shared memory")
            yield Change(name, format_bytes(before), format_bytes(after), found, words)


def _across(a: Occupancy | None, b: Occupancy | None, limit: str, more: int, what: str) -> tuple[str, str]:
    """Effect and words of more of one resource, or less, where that is what limits the number of warps."""
    if a is None or b is None or a.warps == b.warps:
        return "", ""
    found = "slower" if b.warps < a.warps else "faster"
    fewer = b if found == "slower" else a
    if fewer.limit != limit or (more > 0) != (found == "slower"):
        return "", ""
    return found, f"{a} -> {b.warps} are resident at once: the limit is that {what} of a multiprocessor"


def _mix(a: Mapping[str, int] | None, b: Mapping[str, int] | None) -> Iterator[Change]:
    """Number of instructions, and the classes whose number differs, greatest difference first."""
    if a is None or b is None or a == b:
        return
    apart = {name: b.get(name, 0) - a.get(name, 0) for name in {*a, *b} - {"tensor"}}
    names = sorted((name for name in apart if apart[name]), key=lambda name: (-abs(apart[name]), name))
    if names:
        told = [f"{name} {a.get(name, 0):,} -> {b.get(name, 0):,}" for name in names[:_MOST_CLASSES]]
        more = [f"{len(names) - len(told)} more classes"] if len(names) > len(told) else []
        one, other = (f"{sum(side.values()):,}" for side in (a, b))
        yield Change("instructions", one, other, words=f"in PTX: {', '.join(told + more)}")


def _sizes(a: Binary, b: Binary, differs: bool) -> Iterator[Change]:
    """Lengths of files; small differences alone come from paths within them, and are none."""
    for name, label in (("code_bytes", CODE), ("ptx_bytes", "PTX"), ("cubin_bytes", "cubin")):
        one, other = getattr(a, name), getattr(b, name)
        if not one or not other or one == other:
            continue
        if differs or abs(one - other) > _LARGE * max(one, other) or name == "code_bytes":
            yield Change(label, format_bytes(one), format_bytes(other))
