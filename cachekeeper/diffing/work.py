"""Do two runs do the same work?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from ..inventory.models import Graph
from ..units import count
from .models import Change, Graphs, Side, Work
from .others import are_other_sizes, is_nothing_shared, nearest

_MOST = 4
_OUTER = ("forward", "inference")
_HINT = "a hint only: no graph of the one is in the other"
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?(\.exe)?")
# What says where results go, or how processes find each other, and not what is computed.
_NAMED = re.compile(
    r"--?[\w-]*?(output|out|save|log|logging|run|exp|experiment|checkpoint|ckpt|resume|report|wandb|master|rdzv)"
    r"[-_]?(dir|directory|folder|path|file|name|id|to|port|addr|endpoint|project|group)?"
)
_OTHER = {
    "model": "another model",
    "command": "another program, or other arguments",
    "processes": "another number of processes",
    "shapes": "other sizes of inputs",
}


def work(a: Side, b: Side, graphs: Graphs) -> Work:
    """Compare what is recorded of the work: model, command, number of processes, shapes and every tag."""
    differences, same, unknown = [], [], []
    hint = _inputs(graphs)
    for name, one, other in _recorded(a, b):
        told = None not in (one, other)
        if name == "shapes" and hint:
            differences.append(hint)
        elif not told:
            unknown.append(name)
        if told and one == other:
            same.append(name)
        elif one is not None and other is not None:
            differences.append(Change(name, one, other, words=_OTHER.get(name, "")))
    hard = [change for change in differences if change.words != _HINT]
    # With other inputs and no graph in common, that a tag is the same says nothing.
    comparable = "no" if hard else "yes" if same and not hint else "unknown"
    return Work(comparable, tuple(differences), tuple(same), tuple(unknown))


def _recorded(a: Side, b: Side) -> Iterator[tuple[str, str | None, str | None]]:
    for name, tell in (("model", _model), ("command", _command), ("processes", _processes), ("shapes", _shapes)):
        yield name, tell(a), tell(b)
    for tag in sorted({*a.tags, *b.tags}):
        yield f"tag {tag}", a.tags.get(tag), b.tags.get(tag)


def _model(side: Side) -> str | None:
    return side.fingerprint.model.sha256[:12] if side.fingerprint and side.fingerprint.model else None


def _processes(side: Side) -> str | None:
    return None if side.world_size is None else str(side.world_size)


def _shapes(side: Side) -> str | None:
    return ", ".join(side.shapes) or None


def _command(side: Side) -> str | None:
    return shlex.join(_plain_command(side.run.command)) if side.run and side.run.command else None


def _plain_command(command: Sequence[str]) -> list[str]:
    """Without the interpreter's path, and without arguments that say where results go."""
    words = list(command)
    name = words[0].replace("\\", "/").rpartition("/")[2]
    if _PYTHON.fullmatch(name):
        words[0] = "python"
    kept: list[str] = []
    for number, word in enumerate(words):
        if _names_a_place(word.partition("=")[0]):
            continue
        before = words[number - 1] if number else ""
        if _names_a_place(before) and not word.startswith("-"):
            continue
        kept.append(word)
    return kept


def _names_a_place(option: str) -> bool:
    return option.startswith("-") and bool(_NAMED.fullmatch(option[:80]))


def _inputs(graphs: Graphs) -> Change | None:
    """Other inputs of graphs, which say something only where no graph is on both sides.

    Other sizes of the inputs of one function are another work; else it is a hint.
    """
    if not is_nothing_shared(graphs):
        return None
    one, other = (_of_graphs(side) for side in (graphs.only_a, graphs.only_b))
    if not one or not other or one == other:
        return None
    sized = [are_other_sizes(a, b) for a, b, called in nearest(graphs) if called and a.direction in _OUTER]
    words = _OTHER["shapes"] if sized and all(sized) else _HINT
    return Change("inputs", _few(sorted(one - other)), _few(sorted(other - one)), words=words)


def _of_graphs(side: Sequence[Graph]) -> set[str]:
    return {", ".join(graph.inputs[:_MOST]) for graph in side if graph.inputs and graph.direction in _OUTER}


def _few(words: Sequence[str]) -> str:
    if not words:
        return "nothing else"
    return "; ".join(words[:_MOST]) + (f" and {count(len(words) - _MOST, 'other')}" if len(words) > _MOST else "")
