"""What differs between two keys, without what follows from something else that is said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...units import few
from .components import INPUT, Component, components, differences
from .inputs import of_inputs
from .operations import of_operations
from .settings import DETERMINISTIC_SETTING, of_setting
from .words import Change

_UNSEEN = Change("other", "something that torch does not show", "something that torch does not show")
# A torch of another version has other settings, by other names and with other defaults.
_CONSEQUENCES = {
    "torch": ("setting", "option", "pass", "system", "key tag", "other", "tracing"),
    "gradients": ("option", "backward"),
    "shape": ("option",),
    "dynamic": ("option", "shape", "stride", "input"),
    "device": ("current device",),
    "operations": ("option", "shape", "stride", "input", "requires_grad"),
}


def changes(names: Iterable[str], old: Mapping[str, Component], new: Mapping[str, Component]) -> list[Change]:
    """What differs, without what follows from something else that is said.

    Args:
        names: of components that differ.
    """
    names = list(names)
    if "torch_version" in names:  # another version has other components, too
        names = [name for name in names if name == "gm" or INPUT.fullmatch(name) or (name in old and name in new)]
    if "deterministic_algorithms_settings" in names:
        names = [name for name in names if name != DETERMINISTIC_SETTING]
    found = [change for name in names if name != "gm" for change in of_setting(name, old, new)]
    # Sizes that are open now, or no longer, move the inputs: all of them are looked at.
    found += of_inputs(old, new) if any(map(INPUT.fullmatch, names)) else []
    found = _causes(list(dict.fromkeys(found)))
    if "gm" in names and (change := of_operations(old, new, {change.kind for change in found})):
        found.insert(0, change)
    return _causes(found) or [_UNSEEN] * bool(names)


def in_words(names: Iterable[str], old: Mapping[str, Component], new: Mapping[str, Component]) -> list[str]:
    """What differs, as "inductor config max_autotune: False -> True" or "inputs 0, 1: device cuda:0 -> cuda:1"."""
    return [change.words for change in changes(names, old, new)]


def _causes(found: list[Change]) -> list[Change]:
    """Without what follows from another change, or comes with it."""
    kinds = {change.kind for change in found}
    for cause, consequences in _CONSEQUENCES.items():
        if cause in kinds:
            found = [change for change in found if change.kind not in consequences or change.kind == cause]
    vague = [change for change in found if change.kind == "arguments"]
    return [change for change in found if change.kind != "arguments"] or vague


def explain(lines: Sequence[str], known: Iterable[Sequence[str]]) -> list[str]:
    """Why a key is another one than those that are known: what differs from the nearest of them, in words.

    Args:
        lines: the components of the key that missed.
        known: the components of keys that the cache holds.

    Returns:
        Empty where no key is known.
    """
    wanted = components(lines)
    nearest = min(
        ((differences(other, wanted), other) for other in map(components, known)),
        key=lambda item: ("gm" in item[0], len(item[0])),
        default=None,
    )
    if nearest is None or not wanted:
        return []
    return list(few(in_words(nearest[0], nearest[1], wanted)))
