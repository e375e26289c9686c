"""The public API: what `import cachekeeper` promises."""

from __future__ import annotations

import dataclasses
import inspect
from importlib import import_module

import pytest

import cachekeeper

VERBS = [name for name in cachekeeper.__all__ if not name.startswith("_") and name != "plan"]


def test_the_names():
    early = "bisect clear copy diff doctor explain export fingerprint import_cache keep keygen ls merge move pin replay"
    late = "report restore rm run show sign snapshot stats status sweep undo unpin verify warmup watch"
    assert [*early.split(), *late.split()] == VERBS


def test_the_decorator_of_plans():
    assert cachekeeper.plan is import_module("cachekeeper.plans").plan


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_a_documented_function_with_a_frozen_result(name: str):
    verb = getattr(cachekeeper, name)
    assert verb.__name__ == name and inspect.getdoc(verb)
    module = inspect.getmodule(verb)
    assert module and module.__name__ == f"cachekeeper.verbs.{name}"
    result = getattr(module, inspect.signature(verb).return_annotation)
    assert dataclasses.is_dataclass(result) and result.__dataclass_params__.frozen


def test_what_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'prune'"):
        _ = cachekeeper.prune  # type: ignore[attr-defined]


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    assert cachekeeper.__version__ == version("cachekeeper")
