"""A wheel holds the package, all of it, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILT = "from setuptools.build_meta import build_wheel; print(build_wheel('dist'))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    tree = tmp_path_factory.mktemp("tree") / "cachekeeper"
    kept = shutil.ignore_patterns("__pycache__", ".*", "build", "dist", "*.egg-info", "golden")
    shutil.copytree(ROOT, tree, ignore=kept)
    subprocess.run([sys.executable, "-W", "ignore", "-c", BUILT], cwd=tree, check=True, capture_output=True)
    [built] = (tree / "dist").glob("*.whl")
    return zipfile.ZipFile(built)


def test_what_is_in_it(wheel: zipfile.ZipFile):
    package = ROOT / "cachekeeper"
    ours = {f"cachekeeper/{path.relative_to(package)}" for path in package.rglob("*") if path.is_file()}
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert inside == {name for name in ours if "__pycache__" not in name}
    assert {"cachekeeper/py.typed", "cachekeeper/FORMAT.md", "cachekeeper/guard/startup/sitecustomize.py"} <= inside


def test_what_it_says_of_itself(wheel: zipfile.ZipFile):
    told = {name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
    metadata = wheel.read(told["METADATA"]).decode().partition("\n\n")[0].splitlines()
    assert "Requires-Python: >=3.10" in metadata and "Classifier: Operating System :: POSIX :: Linux" in metadata
    needed = {
        line.split()[1].partition(">")[0]
        for line in metadata
        if line.startswith("Requires-Dist") and "extra" not in line
    }
    assert needed == {"boto3", "click", "pydantic", "zstandard", "tomli"}
    assert wheel.read(told["entry_points.txt"]) == b"[console_scripts]\ncachekeeper = cachekeeper.cli:main\n"
    assert "licenses/LICENSE" in told
