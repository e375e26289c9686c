"""Every error tells a program its code and a person what to do."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import cachekeeper
from cachekeeper import errors
from cachekeeper.errors import CachekeeperError

# The table of exit codes in the design, the README and the docstring of errors.py.
EXIT_CODES = {
    "CachekeeperError": 1,
    "UnsupportedSystem": 1,
    "UsageError": 2,
    "CheckFailed": 3,
    "DamagedCache": 3,
    "DamagedStore": 3,
    "Unproven": 3,
    "Pinned": 3,
    "SecretsFound": 3,
    "Untrusted": 3,
    "Unsigned": 3,
    "WrongKey": 3,
    "BadSignature": 3,
    "SwappedName": 3,
    "Replayed": 3,
    "EnvironmentMismatch": 4,
    "NotFound": 5,
    "EmptyCache": 5,
    "KeyMissing": 5,
    "StoreError": 6,
    "AccessDenied": 6,
    "BadCredentials": 6,
    "ClockSkew": 6,
    "CredentialsExpired": 6,
    "FromLaterVersion": 6,
    "NoCredentials": 6,
    "NoSuchBucket": 6,
    "ForeignServer": 6,
    "ReadOnly": 6,
    "TlsFailed": 6,
    "Unreachable": 6,
    "WrongRegion": 6,
    "Busy": 7,
    "LocalDiskError": 8,
    "UnsafePath": 8,
}


def every_error() -> dict[str, type[CachekeeperError]]:
    """Every error class of the package, wherever it is defined."""
    for module in pkgutil.walk_packages(cachekeeper.__path__, "cachekeeper."):
        if not module.name.startswith(("cachekeeper.__main__", "cachekeeper.testing")):
            importlib.import_module(module.name)
    found = [CachekeeperError]
    for kind in found:
        found += kind.__subclasses__()
    return {kind.__name__: kind for kind in found if not kind.__name__.startswith("_")}


def test_exit_codes():
    assert {name: kind.exit_code for name, kind in every_error().items()} == EXIT_CODES


def test_codes_are_unique_and_kebab_case():
    codes = [kind.code for kind in every_error().values()]
    assert len(set(codes)) == len(codes)
    assert all(code.replace("-", "").isalpha() and code.islower() for code in codes)


def test_a_code_of_its_own_comes_with_each_family():
    """Two errors share an exit code exactly where one is a kind of the other."""
    kinds = list(every_error().values())[1:]
    for one in kinds:
        for other in kinds:
            same = one.exit_code == other.exit_code
            assert same == any(issubclass(one, base) and issubclass(other, base) for base in direct_children())


def direct_children() -> list[type[CachekeeperError]]:
    return CachekeeperError.__subclasses__()


def test_the_docstring_draws_the_tree():
    drawn = {}
    code = 0
    for line in (errors.__doc__ or "").splitlines():
        words = line.replace("│", " ").replace("├──", " ").replace("└──", " ").split()
        if words and words[0] in EXIT_CODES:
            code = int(words[1]) if words[1].isdecimal() else code
            drawn[words[0]] = code
    # A missing key never reaches a person as such.
    assert drawn == {name: code for name, code in EXIT_CODES.items() if name != "KeyMissing"}


@pytest.mark.parametrize("kind", every_error().values(), ids=lambda kind: kind.__name__)
def test_an_error_carries_facts_and_a_hint(kind: type[CachekeeperError]):
    error = kind("it broke", facts=(f"n  {number}" for number in range(2)), hint="mend it")
    assert (error.message, error.facts, error.hint) == ("it broke", ("n  0", "n  1"), "mend it")
    assert str(error) == "it broke\n  n  0\n  n  1\nhint: mend it"


def test_an_error_without_them_is_one_line():
    assert str(CachekeeperError("it broke")) == "it broke"
