"""The cache directory, compared with what torch's own code answers in the same environment."""

import os
from pathlib import Path

import pytest

from cachekeeper.environment import cache_directory, triton_directory, triton_home_directory
from cachekeeper.environment.installation import find_torch

# torch's own file, with a stand-in for the one module it imports: importing torch itself takes seconds.
BOTH = """
import importlib.util, os, sys, types
from cachekeeper.environment import cache_directory
uid = os.environ.pop("TEST_UID", "")
fake = types.ModuleType("torch._environment")
fake.is_fbcode = lambda: False
sys.modules.update({"torch": types.ModuleType("torch"), "torch._environment": fake})
spec = importlib.util.spec_from_file_location("theirs", os.environ.pop("TEST_FILE"))
theirs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(theirs)
os.makedirs = lambda *args, **options: None
import getpass, tempfile, pwd
if uid:
    os.setuid(int(uid))
print(cache_directory().path)
print(theirs.cache_dir())
"""
CASES = [
    {},
    {"TMPDIR": "{tmp}"},
    {"TMPDIR": "{tmp}/missing", "TEMP": "{tmp}"},
    {"TMPDIR": "", "TMP": "{tmp}"},
    {"TMPDIR": "inside"},
    {"TORCHINDUCTOR_CACHE_DIR": "{tmp}/cache"},
    {"TORCHINDUCTOR_CACHE_DIR": "relative/./cache/../x"},
    {"TORCHINDUCTOR_CACHE_DIR": ""},
    {"TORCHINDUCTOR_CACHE_DIR": "~/cache"},
    {"USER": 'odd:name/with*every?<kind>|of"thing\\', "LOGNAME": ""},
    {"USER": "user", "LOGNAME": "logname"},
    {"USER": "", "LOGNAME": "", "LNAME": "", "USERNAME": "windows"},
]
NAMELESS = {"USER": None, "LOGNAME": None, "LNAME": None, "USERNAME": None}


def both(run_python, tmp_path, environ):
    (tmp_path / "inside").mkdir(exist_ok=True)
    filled = {name: value and value.replace("{tmp}", str(tmp_path)) for name, value in environ.items()}
    theirs = find_torch().root / "_inductor/runtime/cache_dir_utils.py"
    return run_python(BOTH, environ={**filled, "TEST_FILE": str(theirs)}, cwd=tmp_path).splitlines()


@pytest.mark.parametrize("environ", CASES, ids=str)
def test_agrees_with_torch(run_python, tmp_path, environ):
    ours, theirs = both(run_python, tmp_path, environ)
    assert ours == theirs
    assert os.path.isabs(ours)


def test_agrees_without_any_name(run_python, tmp_path):
    ours, theirs = both(run_python, tmp_path, NAMELESS)
    assert ours == theirs


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("environ", [{}, {"TMPDIR": "{tmp}"}], ids=["/tmp", "unwritable TMPDIR"])
def test_agrees_for_a_user_without_an_entry(run_python, tmp_path, environ):
    tmp_path.chmod(0o711)
    ours, theirs = both(run_python, tmp_path, {**NAMELESS, **environ, "TEST_UID": "12345"})
    assert ours == theirs
    assert ours.endswith("torchinductor_uid_12345")
    assert str(tmp_path) not in ours


@pytest.mark.torch
def test_agrees_with_an_imported_torch(run_python, tmp_path):
    code = """
        from cachekeeper.environment import cache_directory
        ours = cache_directory().path
        from torch._inductor.runtime.runtime_utils import cache_dir
        print(ours); print(cache_dir())
    """
    ours, theirs = run_python(code, environ={"TMPDIR": str(tmp_path), "USER": "a/b"}).splitlines()
    assert ours == theirs


def test_says_where_it_comes_from(tmp_path):
    assert cache_directory({"TORCHINDUCTOR_CACHE_DIR": "/x"}).source == "TORCHINDUCTOR_CACHE_DIR"
    assert cache_directory({"TMPDIR": str(tmp_path)}).source == "default (TMPDIR)"
    assert cache_directory({}).source == "default (/tmp)"


def test_says_what_a_person_should_know(tmp_path):
    assert "relative" in cache_directory({"TORCHINDUCTOR_CACHE_DIR": "cache"}).notes[0]
    assert "empty" in cache_directory({"TORCHINDUCTOR_CACHE_DIR": ""}).notes[0]
    assert "expand" in cache_directory({"TORCHINDUCTOR_CACHE_DIR": "~/c"}).notes[1]
    assert "cannot be written" in cache_directory({"TMPDIR": str(tmp_path / "missing")}).notes[0]
    assert cache_directory({"TORCHINDUCTOR_CACHE_DIR": "/c"}).notes == ()


def test_leaves_nothing_behind(tmp_path):
    cache_directory({"TMPDIR": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def test_triton_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert triton_directory({"TRITON_CACHE_DIR": "here"}) == tmp_path / "here"
    assert triton_directory({"TRITON_CACHE_DIR": ""}) is None
    assert triton_directory({}) is None


def test_triton_home():
    assert triton_home_directory({"TRITON_HOME": "/data"}) == Path("/data/.triton/cache")
    assert triton_home_directory({"HOME": "/home/u/"}) == Path("/home/u/.triton/cache")
    assert triton_home_directory({}).is_absolute()
