"""The tree is the architecture: imports go downwards, and heavy libraries are imported late or never."""

from __future__ import annotations

import ast
import graphlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.testing import make_cache

PACKAGE = Path(cachekeeper.__file__).parent

# As drawn in the docstring of cachekeeper/__init__.py, from the bottom to the top.
ROWS = (
    (
        *("disk", "schema", "workers", "supervision", "config", "plans", "targets", "models", "telemetry", "units"),
        *(
            "masking",
            "ownership",
            "signing",
            "keyfiles",
            "system",
            "progress",
            "variables",
            "records",
            "errors",
            "version",
        ),
    ),
    ("inductor",),
    ("environment", "packs", "manifest", "megacache", "archives", "exported"),
    ("stores", "livecache", "reading", "seen", "doubted", "beside", "strangers", "indexes", "runs"),
    ("repository", "histories", "leases", "condemned", "writing"),
    (
        *("fitting", "preflight", "pins", "inside", "guard", "naming", "signatures", "rollback", "trust"),
        *("trash", "sweeping", "retention"),
    ),
    ("staging", "restored", "comparison", "evidence", "explaining", "clearing"),
    ("capture", "delivery", "warming", "mending", "instead"),
    ("inventory", "diffing", "watching"),
    ("verbs",),
    ("pages",),
    ("cli",),
)
LEVEL = {part: number for number, row in enumerate(ROWS) for part in row}
# `python -m cachekeeper`, and what is published for the tests of others.
ON_TOP = ("__init__", "__main__", "testing")


def modules() -> Iterator[str]:
    """Every module of the package, as "stores.local"."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def imports(module: str, source: str) -> set[str]:
    """The modules of cachekeeper that a source imports, as "stores.local"; inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*module.split(".")[: -node.level], *(node.module or "").split(".")]
            found |= {".".join(filter(None, [*base, alias.name])) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "cachekeeper":
            found |= {f"{node.module}.{alias.name}".partition(".")[2] for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[2] for alias in node.names if alias.name.startswith("cachekeeper.")}
    return found


def upward(module: str, source: str) -> list[str]:
    """What a source imports from a row above its own."""
    level = LEVEL[module.partition(".")[0]]
    parts = {name.partition(".")[0] for name in imports(module, source)}
    return sorted(part for part in parts if part in ON_TOP[1:] or LEVEL.get(part, 0) > level)


def read(module: str) -> str:
    return (PACKAGE / (module.replace(".", "/") + ".py")).read_text()


def test_every_module_has_a_row():
    assert {module.partition(".")[0] for module in modules()} - set(ON_TOP) == set(LEVEL)


def drawn() -> list[set[str]]:
    """The parts of each row of the drawing: columns of names, each followed by a column of words."""
    rows: list[set[str]] = []
    for line in (cachekeeper.__doc__ or "").splitlines():
        if not line.startswith("    ") or "─" in line:
            continue
        parts = {part for names in re.split(r" {2,}", line.strip())[::2] for part in names.split(", ")}
        if line.startswith("      "):
            rows[-1] |= parts
        else:
            rows.append(parts)
    return rows


def test_the_docstring_draws_these_rows():
    assert drawn() == [set(row) - {"version"} for row in reversed(ROWS)]


@pytest.mark.parametrize("module", [name for name in modules() if name.partition(".")[0] in LEVEL])
def test_no_module_imports_upwards(module: str):
    assert upward(module, read(module)) == []


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("packs", "from .repository import Repository", ["repository"]),
        ("stores.local", "def f():\n    from ..verbs.ls import ls", ["verbs"]),
        ("verbs.ls", "from .. import cli", ["cli"]),
        ("verbs.doctor.job", "from ...cli import output", ["cli"]),
        ("inductor.layout", "import cachekeeper.manifest", ["manifest"]),
        ("units", "from cachekeeper import testing", ["testing"]),
        ("repository", "from .packs import Frame\nfrom . import errors\nimport os", []),
    ],
)
def test_an_upward_import_is_noticed(module: str, source: str, found: list[str]):
    assert upward(module, source) == found


def test_no_two_modules_import_each_other():
    known = set(modules())
    graph = {}
    for module in known:
        names = imports(module, read(module))
        # A name in a module is not a module; a package's own __init__ gathers what is in it.
        graph[module] = {name if name in known else name.rpartition(".")[0] for name in names} & known - {module}
    list(graphlib.TopologicalSorter(graph).static_order())


def test_only_main_catches_every_error():
    """Errors carry facts upwards; one place turns them into words."""
    catching = [
        module
        for module in modules()
        for node in ast.walk(ast.parse(read(module)))
        if isinstance(node, ast.ExceptHandler)
        and isinstance(node.type, ast.Name)
        and node.type.id == "CachekeeperError"
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    ]
    assert [module for module in dict.fromkeys(catching) if not module.startswith("verbs.doctor")] == [
        "cli.entry",
        "guard.telling",  # nothing of ours may be raised into a job
        "inside.__main__",  # the entry point of another process
    ]


# Heavy imports

HEAVY = (
    *(
        "torch",
        "triton",
        "boto3",
        "botocore",
        "numpy",
        "cryptography",
        "pydantic",
        "pydantic_core",
        "zstandard",
        "click",
    ),
    *("asyncio", "multiprocessing.pool", "unittest", "http.client", "ssl", "importlib.metadata"),
)


def loaded(code: str, *, cwd: Path | None = None) -> set[str]:
    """The heavy libraries and modules that a fresh interpreter has loaded after running some code."""
    report = f"\nimport json, sys; sys.stderr.write(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    result = subprocess.run(
        [sys.executable, "-c", code + report], env=environ, cwd=cwd, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stderr.splitlines()[-1]))


def loaded_by(*arguments: str) -> set[str]:
    """The same, after a command."""
    return loaded(f"from cachekeeper.cli import main\nassert main({list(arguments)}) == 0")


def test_the_probe_sees_what_is_loaded():
    assert loaded("import zstandard, click") == {"zstandard", "click"}


def test_importing_the_package_loads_nothing():
    assert loaded("import cachekeeper; cachekeeper.__version__") == set()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["version"]])
def test_help_loads_no_library_but_click(arguments: list[str]):
    assert loaded_by(*arguments) == {"click"}


@pytest.mark.parametrize(
    "command",
    [
        *("snapshot", "restore", "verify", "ls", "show", "diff", "report", "bisect", "pin", "fingerprint", "doctor"),
        *("status", "watch", "clear", "move", "rm", "undo", "keep", "sweep", "keygen", "sign"),
    ],
)
def test_help_of_a_command_loads_no_validation_library(command: str):
    assert loaded_by(command, "--help") <= {"click", "zstandard"}


def test_no_command_of_the_main_job_loads_torch(tmp_path: Path):
    cache, store = str(make_cache(tmp_path / "cache")), str(tmp_path / "store")
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    for arguments in (
        ("snapshot", "drafter", "--cache-dir", cache, "--wait", "0"),
        ("restore", "drafter", "--cache-dir", str(tmp_path / "other"), "--verify"),
        ("status", cache),
        ("status", cache, "--quick"),
        ("verify", "--all"),
        ("verify", "drafter", "--live", cache),
        ("ls",),
        ("show", "drafter"),
        ("report", "drafter"),
        ("diff", "drafter"),
        ("pin", "drafter"),
        ("unpin", "drafter"),
        ("rm", "drafter"),
        ("undo",),
        ("ls", "--trash"),
        ("keep", "--last", "1"),
        ("sweep",),
    ):
        assert loaded_by(*arguments, "--store", store) <= {"click", "zstandard", "pydantic_core"}, arguments
    assert loaded_by("verify", "--dir", cache) <= {"click", "zstandard"}


def test_looking_at_this_machine_loads_no_library_but_click():
    assert loaded_by("fingerprint") == {"click"}
