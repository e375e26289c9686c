"""Two fingerprints, compared: what differs, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator

from ..models import Comparison, Difference, Fact, Facts, Fingerprint, ModelHash
from .words import plain, shown

IGNORED = "torch would ignore every entry"

# What only kernels in C++ depend on: the first two by their code, the others by the key or the library's name
# (FxGraphHashDetails in torch/_inductor/codecache.py; cpp_builder.py hashes the compiler's command line).
CPU_FACTS = frozenset(["instruction_set", "threads", "cxx", "torch_path", "python_include"])

_EFFECTS = {
    "torch": IGNORED,
    "torch_source": IGNORED,
    "cuda": IGNORED,
    "hip": IGNORED,
    "gpu": IGNORED,
    "triton": IGNORED,
    "triton_source": IGNORED,
    "ptxas": "Triton would compile every kernel again",
    "libdevice": "Triton would compile every kernel that calls libdevice again",
    "python_abi": IGNORED,
    "instruction_set": "CPU kernels may crash or be rebuilt",
    "threads": "CPU kernels would be ignored, or run with the other number of threads",
    "cxx": "CPU kernels would be rebuilt; torch 2.13 and later would ignore every entry",
    "torch_path": "CPU kernels would be rebuilt under other names",
    "python_include": "CPU kernels would be rebuilt under other names",
    "environment": "keys or generated code may differ",
    "driver": "Triton's launchers may be rebuilt",
    "gpu_count": "entries of the other devices are missing or not used",
    "compiler": "precompiled headers and CPU kernels built here may differ",
    "glibc": "libraries built with a newer one do not load",
    "libstdcxx": "libraries built with a newer one do not load",
}
# What a job's launcher says, as far as it is in the graphs themselves.
_OF_THE_JOB = {"WORLD_SIZE": "graphs with collectives hold the number of processes: they may miss"}
_SAME_CHIP = "the same architecture under another name: kernels fit, and there is no graph, whose key holds the name"
_NOT_FOR_TRITON = "no effect on GPU kernels; C++ code of theirs would be rebuilt or ignored"

# A hash says nothing to a person next to two different versions.
_FOLLOWS = {"torch_source": "torch", "triton_source": "triton", "ptxas": "triton", "libdevice": "triton"}
_UNREAD = Fact(unknown="not recorded")


def compare(theirs: Fingerprint, ours: Fingerprint, *, cpu_code: bool = True, graphs: bool = True) -> Comparison:
    """What differs between a snapshot's fingerprint and this machine's.

    A fact that one side does not know, or does not have, is a difference. Environment variables are compared one
    by one. Two different model hashes are a `must` difference, a hash on one side only is a `should` one. So is
    another number of processes, where both sides know theirs.

    Args:
        cpu_code: whether the snapshot holds kernels in C++; without them, what only these depend on deserves
            a warning at most.
        graphs: whether it holds graphs; without them, another name of a GPU of the same architecture deserves no more.
    """
    must = list(_group("must", theirs.must, ours.must))
    should = list(_group("should", theirs.should, ours.should))
    if not cpu_code:
        should = [_only_a_warning(item, _NOT_FOR_TRITON) for item in must if item.name in CPU_FACTS] + should
        must = [item for item in must if item.name not in CPU_FACTS]
    should += _jobs(theirs.recorded.get("job"), ours.recorded.get("job"))
    if not graphs and _is_same_chip(theirs.must.get("gpu"), ours.must.get("gpu")):
        should = [_only_a_warning(item, _SAME_CHIP) for item in must if item.name == "gpu"] + should
        must = [item for item in must if item.name != "gpu"]
    for item in _models(theirs.model, ours.model):
        (must if theirs.model and ours.model else should).append(item)
    return Comparison(tuple(must), tuple(should))


def _group(group: str, theirs: Facts, ours: Facts) -> Iterator[Difference]:
    differing = {name for name in theirs.keys() | ours.keys() if not _same(theirs.get(name), ours.get(name))}
    for name in [*theirs, *(name for name in ours if name not in theirs)]:
        if name in differing and not _implied(name, differing, theirs, ours):
            yield from _differences(group, name, theirs.get(name), ours.get(name))


def _same(theirs: Fact | None, ours: Fact | None) -> bool:
    return theirs is not None and ours is not None and theirs.same(ours)


def _implied(name: str, differing: set[str], theirs: Facts, ours: Facts) -> bool:
    cause = _FOLLOWS.get(name)
    facts = (theirs.get(name, _UNREAD), ours.get(name, _UNREAD))
    return cause in differing and not any(fact.unknown for fact in facts)


def _differences(group: str, name: str, theirs: Fact | None, ours: Fact | None) -> Iterator[Difference]:
    if _is_dict(theirs) and _is_dict(ours):
        yield from _variables(group, name, theirs, ours)
        return
    yield Difference(group, name, shown(name, theirs), shown(name, ours), _effect(name, theirs, ours))


def _is_dict(fact: Fact | None) -> bool:
    return fact is not None and not fact.unknown and isinstance(fact.value, dict)


def _variables(group: str, name: str, theirs: Fact | None, ours: Fact | None) -> Iterator[Difference]:
    left = theirs.value if theirs and isinstance(theirs.value, dict) else {}
    right = ours.value if ours and isinstance(ours.value, dict) else {}
    for key in sorted(left.keys() | right.keys()):
        if key not in left or key not in right or left[key] != right[key]:
            sides = [plain(side[key]) if key in side else "not set" for side in (left, right)]
            yield Difference(group, key, sides[0], sides[1], _EFFECTS.get(name, ""))


def _jobs(theirs: Fact | None, ours: Fact | None) -> Iterator[Difference]:
    """Nothing is said where one side was not started by a launcher, as `restore` in a launch script is not."""
    left, right = (fact.value if fact and isinstance(fact.value, dict) else {} for fact in (theirs, ours))
    for name, effect in _OF_THE_JOB.items():
        if name in left and name in right and left[name] != right[name]:
            yield Difference("should", name, plain(left[name]), plain(right[name]), effect)


def _effect(name: str, theirs: Fact | None, ours: Fact | None) -> str:
    effect = _EFFECTS.get(name, "")
    if any(fact is None or fact.unknown for fact in (theirs, ours)):
        return f"cannot be checked; if it differs: {effect}" if effect else "cannot be checked"
    if name in ("torch_source", "triton_source"):
        return f"same version, other build or edited files: {effect}"
    if name == "gpu" and theirs and ours:
        return _gpu_effect(theirs, ours)
    return effect


def _gpu_effect(theirs: Fact, ours: Fact) -> str:
    left, right = _capabilities(theirs), _capabilities(ours)
    if left and right and left != right:
        return f"{IGNORED}; kernels for {', '.join(sorted(left))} do not run here"
    if left and left == right:
        return f"{IGNORED}, as its key holds the name; Triton's own kernels fit"
    return IGNORED


def _is_same_chip(theirs: Fact | None, ours: Fact | None) -> bool:
    """Each side has one architecture, and the other has it too."""
    sides = [set() if fact is None or fact.unknown else _capabilities(fact) for fact in (theirs, ours)]
    return len(sides[0]) == 1 and sides[0] == sides[1]


def _capabilities(fact: Fact) -> set[str]:
    items = fact.value if isinstance(fact.value, list) else []
    return {str(item.get("capability")) for item in items if isinstance(item, dict)}


def _only_a_warning(item: Difference, effect: str) -> Difference:
    return Difference("should", item.name, item.theirs, item.ours, effect)


def _models(theirs: ModelHash | None, ours: ModelHash | None) -> Iterator[Difference]:
    if theirs is None and ours is None:
        return
    if theirs is not None and ours is not None and theirs.sha256 == ours.sha256:
        return
    effect = "another model: its graphs are not in this snapshot" if theirs and ours else "cannot be checked"
    yield Difference("model", "model", _model(theirs), _model(ours), effect)


def _model(model: ModelHash | None) -> str:
    return "not recorded" if model is None else model.sha256[:12]
