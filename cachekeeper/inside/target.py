""" "train.py:step" -> the function, found as the user's own script would find it."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ..errors import NotFound, UsageError
from ..targets import for_people, other_plans

Function = Callable[..., Any]


def load(target: str) -> Function:
    """Import what holds a target, and take the function from it.

    A file is imported with its own directory first on the path, as `python FILE` does; a module with the working
    directory first, as `python -m` does.

    Raises:
        UsageError: the target is not written as one, importing it fails, or it is no function.
        NotFound: no such file, module or function.
    """
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise UsageError(f"not a target: {target!r}", hint="write `train.py:step` or `package.module:step`")
    module = _from_file(place) if place.endswith(".py") or os.sep in place else _from_name(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise _no_function(found, part, place)
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{target} is no function", facts=[f"it is a {type(found).__name__}"])
    return found  # type: ignore[no-any-return]


def _no_function(found: Any, part: str, place: str) -> NotFound:
    names = [name for name in dir(found) if not name.startswith("_")]
    known = [name for name in names if callable(getattr(found, name, None))]
    close = difflib.get_close_matches(part, known, n=3, cutoff=0.5)
    hint = "did you mean " + " or ".join(f"`{place}:{name}`" for name in close) + "?" if close else ""
    return NotFound(f"{place} has no function {part!r}", hint=hint)


def _from_file(path: str) -> ModuleType:
    absolute = os.path.abspath(os.path.expanduser(path))
    if not os.path.isfile(absolute):
        raise NotFound(f"no file {absolute}")
    sys.path.insert(0, os.path.dirname(absolute))
    name = os.path.splitext(os.path.basename(absolute))[0]
    spec = importlib.util.spec_from_file_location(name, absolute)
    if spec is None or spec.loader is None:
        raise UsageError(f"{absolute} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _importing(path, lambda: spec.loader.exec_module(module))  # type: ignore[union-attr]
    return _as_main(name)


def _from_name(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    first = name.partition(".")[0]
    if not first or importlib.util.find_spec(first) is None:
        raise NotFound(f"no module {name!r}", hint="give a file as `path/to/file.py:function`")
    _importing(name, lambda: importlib.import_module(name))
    return _as_main(name)


def _as_main(name: str) -> ModuleType:
    """The module, after all others: in the job it is `__main__`, which pickle does not look into.

    torch's keys hold the name under which pickle finds `torch.contiguous_format`: that of the first module with an
    attribute `torch`. Where that is the target, no key is one that the job asks for.
    Source: `whichmodule` in Modules/_pickle.c, `FxGraphCachePickler` in torch/_inductor/codecache.py.
    """
    module = sys.modules[name] = sys.modules.pop(name)
    return module


def _importing(place: str, run: Callable[[], object]) -> None:
    try:
        run()
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{place} cannot be imported: {type(error).__name__}: {error}",
            facts=own_traceback(error).splitlines(),
            hint=_hint_for(error),
        ) from None


def _hint_for(error: BaseException) -> str:
    if isinstance(error, ImportError) and "relative import" in str(error):
        return "a file of a package is given as `package.module:function`"
    if isinstance(error, (SyntaxError, ImportError)):
        return "it is imported by this Python; run it by hand to see more"
    return "a file that runs a job when it is imported needs `if __name__ == '__main__':` around it"


def own_traceback(error: BaseException) -> str:
    """The traceback of a user's error without the frames of this package."""
    here = os.path.dirname(__file__)
    whole = traceback.TracebackException.from_exception(error)
    one: traceback.TracebackException | None = whole
    while one is not None:  # what it was raised from, too
        own = [frame for frame in one.stack if not frame.filename.startswith((here, "<frozen importlib"))]
        one.stack = traceback.StackSummary.from_list(own)
        one = one.__cause__ or one.__context__
    return "".join(whole.format())


def wanted_arguments(function: Function, target: str, given: Mapping[str, object]) -> set[str]:
    """The names among device, mode and shape that a function takes.

    Raises:
        UsageError: it needs others, or the plan has shapes and it takes none.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set(given)
    takes = {item.name for item in parameters if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)}
    needs = {
        item.name
        for item in parameters
        if item.default is item.empty and item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
    }
    if needs - given.keys():
        missing = sorted(needs - given.keys())
        message = f"{target} needs {', '.join(missing)}, which the plan does not have"
        if missing != ["shape"]:
            hint = "it is called with `device`, `mode` and `shape`: give other parameters a default"
            raise UsageError(message, hint=hint)
        tables, close = other_plans(target)
        hint = f'give shapes with --shape, in the decorator or in [warmup."{for_people(target)}"]'
        raise UsageError(message, facts=tables, hint=f"{hint}; did you mean that by `{close}`?" if close else hint)
    if any(item.kind is item.VAR_KEYWORD for item in parameters):
        return set(given)
    if "shape" in given and "shape" not in takes:
        raise UsageError(f"the plan has shapes and {target} takes none", hint="give it a parameter `shape`")
    return takes & given.keys()


def source_hash(function: Function) -> str:
    """SHA-256 of the file that a function is in; "" where there is none."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(function))
        with open(path or "", "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except (TypeError, OSError):
        return ""
