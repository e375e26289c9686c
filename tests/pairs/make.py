"""Make the pairs of snapshots that `diff` is tested on: `python -m tests.pairs.make STORE` on a machine with two H200s.

Those on a CPU by `python -m tests.pairs.make STORE cpu` and so on, with the torch that is to be compared. Each variant
of the job runs in an empty cache, which is thinned, so that the repository can hold it, and saved. What is thinned
away: Triton's intermediate code, the code of kernels that only autotuning tried, and the copies of kernels within graph
entries. Everything that is left is as torch and Triton wrote it.
"""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cachekeeper
from cachekeeper.environment import fingerprint
from cachekeeper.inductor.pickles import _apply, _Edit
from cachekeeper.models import Fact
from cachekeeper.runs import find

JOBS = {
    "attention": ("tf32", "ieee"),
    "products": ("plain", "tuned-1", "tuned-2"),
    "cpu": ("cpu", "cpu-scalar", "cpu-other"),
}
VARIANTS = ("default", "warps", "forward", "infer", "two", "tf32", "ieee", "plain", "tuned-1", "tuned-2")
# The first two do only a part of a step; the last ran beside other work: their numbers cannot be compared.
UNMEASURED = ("forward", "infer", "cpu-other")
ENVIRONMENTS = {"cpu-scalar": {"ATEN_CPU_CAPABILITY": "default"}}
WORK = Path("/tmp/pairs")
CACHE = WORK / "cache"
KEPT = (".json", ".ptx", ".cubin")
LONG = 512
PACKAGES = ("torch", "triton", "numpy", "transformers")


def main(store: str, *variants: str) -> None:
    WORK.mkdir()
    for name in ("job.py", "own_kernel.py"):
        shutil.copy(Path(__file__).with_name(name), WORK)
    os.environ.update(
        CACHEKEEPER_STORE=os.path.abspath(store),
        CACHEKEEPER_RUNS=f"{WORK}/runs",
        TORCHINDUCTOR_CACHE_DIR=str(CACHE),
        TRITON_CACHE_DIR=str(CACHE / "triton/shared"),
    )
    for variant in variants or VARIANTS:
        make(variant)
        shutil.rmtree(CACHE)
    shutil.rmtree(WORK)


def make(variant: str) -> None:
    # The guard compiles a backward together with its forward: the one that is to be missing would be there.
    guarded = variant != "forward"
    run = [sys.executable, "-m", "cachekeeper", "run", "--cache-dir", str(CACHE), "--"] if guarded else []
    environ = {**os.environ, "VARIANT": variant, **ENVIRONMENTS.get(variant, {})}
    job = [*run, sys.executable, "job.py"]
    done = subprocess.run(job, cwd=WORK, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    thin(CACHE)
    here = fingerprint()
    packages = {name: version for name, version in here.recorded["packages"].value.items() if name in PACKAGES}
    told = {"python": here.recorded["python"], "packages": Fact(packages)}
    result = cachekeeper.snapshot(
        variant,
        cache_dir=CACHE,
        metrics={} if variant in UNMEASURED else json.loads(done.stdout.splitlines()[-1]),
        tags={"job": of_job(variant)},
        run=find("last") if guarded else None,
        made_on=replace(here, recorded=told),
    )
    print(variant, result.snapshot.id, dict(result.snapshot.header.metrics), flush=True)


def of_job(variant: str) -> str:
    return next((job for job, variants in JOBS.items() if variant in variants), "block")


def thin(cache: Path) -> None:
    """Take away what is large and what `diff` does not read."""
    wrappers = "".join(path.read_text() for path in cache.glob("??/*.py") if path.read_text().startswith("# AOT ID:"))
    for directory in cache.glob("triton/*/*"):
        ptx = next(directory.glob("*.ptx"), None)
        tried = ptx is not None and ptx.stem not in wrappers
        for path in directory.iterdir():
            if path.suffix not in KEPT or (tried and path.suffix != ".json"):
                path.unlink()
        regroup(directory)
        if not any(directory.iterdir()):
            directory.rmdir()
    for path in cache.glob("fxgraph/*/*/*"):
        path.write_bytes(without_kernels(path.read_bytes()))


def regroup(directory: Path) -> None:
    """List in a group file only what is left."""
    for group in directory.glob("__grp__*.json"):
        children = json.loads(group.read_text())["child_paths"]
        left = {name: path for name, path in children.items() if (directory / name).exists()}
        group.write_text(json.dumps({"child_paths": left}))


def without_kernels(data: bytes) -> bytes:
    """A pickle with nothing in place of its long byte strings."""
    edits: list[_Edit] = []
    frames: list[tuple[int, int]] = []
    start = None
    for _, argument, position in pickletools.genops(data):
        assert position is not None
        if start is not None:
            edits.append(_Edit(start, position, pickle.SHORT_BINBYTES + b"\0"))
        start = position if isinstance(argument, bytes) and len(argument) > LONG else None
        if data[position : position + 1] == pickle.FRAME:
            frames.append((position, argument))
    return _apply(data, edits, frames)


if __name__ == "__main__":
    main(*sys.argv[1:])
