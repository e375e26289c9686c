"""What `cachekeeper run` puts on PYTHONPATH: loaded by any Python, seen by none that does not import torch."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cachekeeper

STARTUP = Path(cachekeeper.__file__).parent / "guard" / "startup"
SHOW = """
import json, sys
kinds = [getattr(type(m), "__name__", "") for m in sys.meta_path]
this = getattr(sys.modules.get("sitecustomize"), "__file__", "")
print(json.dumps({"cachekeeper": "cachekeeper" in sys.modules, "waits": "_UntilTorch" in kinds, "file": this,
    "path": [p for p in sys.path if "startup" in p]}))
"""


def python(*arguments: str, interpreter: str = sys.executable, path: str = "", **variables: str):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(STARTUP), path)))}
    environment.update({"CACHEKEEPER_GUARD": "{}", **variables})
    return subprocess.run([interpreter, *arguments], env=environment, capture_output=True, text=True)


def test_nothing_is_imported_until_torch_is(tmp_path: Path):
    done = python("-c", SHOW, CACHEKEEPER_RUN=str(tmp_path))
    found = json.loads(done.stdout)
    assert (found["cachekeeper"], found["waits"], found["path"], done.stderr) == (False, True, [], "")
    assert [path.name for path in tmp_path.iterdir()] == ["loaded-python"]
    assert json.loads(python("-c", SHOW, CACHEKEEPER_RUN="/no/such").stdout)["waits"]


def test_torch_that_is_imported_is_guarded(tmp_path: Path):
    """Also in a Python that has no cachekeeper, and nothing of ours but that becomes importable."""
    (tmp_path / "torch.py").write_text("import sys\nbefore = 'cachekeeper.guard' in sys.modules\n")
    code = "import torch, cachekeeper.guard as g; print(torch.before, sorted(set(g.measures().values())), g.__file__)"
    done = python(
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(STARTUP)!r}); import sitecustomize\n{code}",
        path=str(tmp_path),
        CACHEKEEPER_RUN=str(tmp_path),
    )
    assert done.stdout.startswith("True ["), done
    assert str(STARTUP.parent) in done.stdout
    assert (tmp_path / "loaded-torch").exists()
    done = python("-S", "-c", "import sys; import sitecustomize, torch, click", path=str(tmp_path))
    assert "No module named 'click'" in done.stderr


def test_a_guard_that_cannot_be_loaded_is_no_harm(tmp_path: Path):
    (tmp_path / "torch.py").write_text("")
    done = python("-c", "import torch; print('fine')", path=str(tmp_path), CACHEKEEPER_GUARD="{")
    assert done.stdout == "fine\n" and "is not guarded: JSONDecodeError" in done.stderr
    assert done.stderr.count("\n") == 1
    done = python("-c", "import torch", path="", interpreter=_without_torch(tmp_path))
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch'"


def _without_torch(tmp_path: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    return str(tmp_path / "venv" / "bin" / "python")


def test_the_next_one_is_run_in_its_place(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.theirs = True\n")
    found = json.loads(python("-c", SHOW, path=str(tmp_path)).stdout)
    assert found["file"] == str(tmp_path / "sitecustomize.py") and found["waits"]
    # Of another length: within a second Python would take the bytecode of the first.
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('theirs, which fails')\n")
    ours = python("-c", "import sys; print(1)", path=str(tmp_path))
    (tmp_path / "empty").mkdir()
    theirs = subprocess.run(
        [sys.executable, "-c", "print(1)"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (ours.stdout, ours.stderr) == (theirs.stdout, theirs.stderr) and "theirs" in ours.stderr


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_where_it_is_not_loaded_all_is_as_ever(flag: str):
    found = python(flag, "-c", SHOW)
    assert found.stderr == "" and not json.loads(found.stdout)["waits"]


def test_without_the_guards_variable_it_does_nothing(monkeypatch: pytest.MonkeyPatch):
    environment = {**os.environ, "PYTHONPATH": str(STARTUP)}
    done = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True)
    assert not json.loads(done.stdout)["waits"]


def test_old_pythons_pass_over_it(tmp_path: Path):
    """Those that are here, and what any of them could not read: the file is held to the grammar of Python 3.0."""
    import ast

    source = (STARTUP / "sitecustomize.py").read_text()
    ast.parse(source, feature_version=(3, 0))
    modern = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Nonlocal, ast.YieldFrom, ast.AsyncFunctionDef, ast.arg)
    nodes = list(ast.walk(ast.parse(source)))
    assert [node for node in nodes if isinstance(node, modern[:-1])] == []
    assert all(node.annotation is None for node in nodes if isinstance(node, ast.arg))
    for interpreter in _old_pythons():
        done = python("-c", SHOW, interpreter=interpreter, PYTHONDONTWRITEBYTECODE="1")
        assert (done.returncode, done.stderr) == (0, ""), (interpreter, done)
        assert not json.loads(done.stdout)["waits"]


def _old_pythons() -> list[str]:
    """Those on PATH, or that pyenv has, that run."""
    found = []
    for version in ("2.7", "3.6", "3.9"):
        path = Path(shutil.which(f"python{version}") or "/no")
        kept = sorted(path.parent.parent.glob(f"versions/{version}.*/bin/python"))
        interpreter = str(kept[0] if kept else path)
        if os.path.exists(interpreter) and subprocess.run([interpreter, "-c", ""], capture_output=True).returncode == 0:
            found.append(interpreter)
    print(found)
    return found


def test_it_costs_less_than_a_millisecond(tmp_path: Path):
    """Compiled, as an installation has it; the fastest of ten, since others are at work on this machine too."""
    import importlib.util
    import py_compile

    (tmp_path / "guard" / "startup").mkdir(parents=True)
    copy = Path(shutil.copy(STARTUP / "sitecustomize.py", tmp_path / "guard" / "startup"))
    py_compile.compile(str(copy), cfile=importlib.util.cache_from_source(str(copy)))
    took = []
    for _ in range(10):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", "pass"],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(copy.parent),
                "CACHEKEEPER_GUARD": "{}",
                "CACHEKEEPER_RUN": str(tmp_path),
            },
        )
        took += [int(us) for us in re.findall(r"\| +(\d+) \| +sitecustomize$", done.stderr, re.MULTILINE)]
    print(f"{sorted(took)} microseconds")
    assert len(took) >= 10 and min(took) < 1000
