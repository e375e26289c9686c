"""Fingerprints of two caches side by side, and the settings in which the keys of their graphs differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..environment.comparison import IGNORED
from ..environment.comparison import compare as compare_fingerprints
from ..environment.words import plain
from ..models import Difference, Fact, Fingerprint
from .models import Change, Environment

# What people ask for first; the others keep the fingerprint's order.
_FIRST = ("torch", "triton", "cuda", "hip", "gpu")
_NOT_INSTALLED = "not installed"
_NOT_SET = "not set"
_UNCHECKED = "cannot be checked"
# Of what is recorded and never compared: it says which device a job saw, or has no effect on what is compiled.
_ALSO = {"visible_devices": "not in any key", "variables_without_effect": "no effect on what is compiled"}
_HERE = ((" do not run here", " do not run on the other GPU"), (" built here", ""))


def environment(
    a: Fingerprint | None, b: Fingerprint | None, config: tuple[Change, ...], cpu_code: bool
) -> Environment:
    """Compare two fingerprints.

    What neither side knows is no difference. The hash of the model and the number of processes are part of the work,
    not of the environment.

    Args:
        config: settings that differ in the keys of graphs.
        cpu_code: whether a side holds kernels in C++.
    """
    if a is None or b is None:
        return Environment(config=config)
    found = compare_fingerprints(a, b, cpu_code=cpu_code)
    items = [item for item in (*found.must, *found.should) if not _of_the_work(item) and not _unknown(item.name, a, b)]
    facts = [item for item in items if _fact(item.name, a) or _fact(item.name, b)]
    facts.sort(key=lambda item: _FIRST.index(item.name) if item.name in _FIRST else len(_FIRST))
    variables = [item for item in items if item not in facts]
    return Environment(
        tuple(map(_change, facts)),
        tuple(item.name for item in facts if IGNORED in item.effect and _breaks(item.effect)),
        (*map(_change, variables), *_recorded_variables(a, b)),
        tuple(_packages(a, b, {item.name for item in facts})),
        config,
    )


def _of_the_work(item: Difference) -> bool:
    return item.group == "model" or item.name == "WORLD_SIZE"


def _fact(name: str, side: Fingerprint) -> Fact | None:
    return side.must.get(name) or side.should.get(name)


def _unknown(name: str, a: Fingerprint, b: Fingerprint) -> bool:
    facts = [_fact(name, side) for side in (a, b)]
    return all(fact is not None and fact.unknown for fact in facts)


def _breaks(effect: str) -> bool:
    return not effect.startswith(_UNCHECKED) and "later would" not in effect


def _change(item: Difference) -> Change:
    words = item.effect
    for here, there in _HERE:
        words = words.replace(here, there)
    return Change(item.name, item.theirs, item.ours, words=words)


def _recorded(side: Fingerprint, name: str) -> Mapping[str, object] | None:
    fact = side.recorded.get(name)
    return fact.value if fact and not fact.unknown and isinstance(fact.value, dict) else None


def _recorded_variables(a: Fingerprint, b: Fingerprint) -> Iterator[Change]:
    for name, words in _ALSO.items():
        for change in _entries(_recorded(a, name), _recorded(b, name), _NOT_SET, words):
            if not change.name.endswith("CACHE_DIR"):  # where a cache was, which is told anyway
                yield change


def is_idle(variable: Change) -> bool:
    """True for a variable that no key and no kernel depends on."""
    return variable.words in _ALSO.values()


def _packages(a: Fingerprint, b: Fingerprint, said: Iterable[str]) -> Iterator[Change]:
    """Packages that differ, without those of which a fact says so."""
    for change in _entries(_recorded(a, "packages"), _recorded(b, "packages"), _NOT_INSTALLED):
        if change.name not in said:
            yield change


def _entries(
    a: Mapping[str, object] | None, b: Mapping[str, object] | None, missing: str, words: str = ""
) -> Iterator[Change]:
    if a is None or b is None:
        return
    for name in sorted({*a, *b}):
        one, other = (_text(side[name]) if name in side else missing for side in (a, b))
        if one != other:
            yield Change(name, one, other, words=words)


def _text(value: object) -> str:
    return plain(value) if isinstance(value, (str, int, float, list, dict)) else str(value)
