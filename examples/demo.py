"""The main job from beginning to end, on this machine's CPU: `make demo`.

A small model is compiled into a cache directory of its own. The cache is saved, wiped, restored and used again by a
fresh process; then one byte of it is damaged, found, and mended. Ends non-zero if any of that fails.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORK = Path(".demo").resolve()
CACHE, STORE = WORK / "inductor", WORK / "store"


class Failed(Exception):
    """A step of the demo did not do what it must."""


def environment() -> dict[str, str]:
    own = {"TORCHINDUCTOR_CACHE_DIR": str(CACHE), "CACHEKEEPER_CACHE_DIR": str(CACHE), "CACHEKEEPER_STORE": str(STORE)}
    return {**os.environ, **own}


def cachekeeper(*arguments: str, expect: int = 0) -> None:
    shown = [argument.replace(str(WORK), ".demo") for argument in arguments]
    print(f"\n$ cachekeeper {shlex.join(shown)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "cachekeeper", *arguments], env=environment()).returncode
    if code != expect:
        raise Failed(f"`cachekeeper {shlex.join(shown)}` ended with {code}, not {expect}")


def job(what: str) -> dict[str, float]:
    print(f"\n$ python examples/block.py        # {what}", flush=True)
    done = subprocess.run([sys.executable, HERE / "block.py"], env=environment(), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failed(f"the {what} run failed")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print("  ".join(f"{key} {value}" for key, value in result.items()), flush=True)
    return result


def check(condition: bool, claim: str) -> None:
    if not condition:
        raise Failed(f"not so: {claim}")
    print(f"   {claim}")


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def demo() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    CACHE.mkdir(parents=True)

    print("1. Fill a cache: every graph is compiled.")
    cold = job("cold")
    check(cold["misses"] > 0, "the first run compiles")

    print("\n2. Save it, lose it, bring it back.")
    cachekeeper("snapshot", "demo", "--message", "demo")
    shutil.rmtree(CACHE)
    print(f"\n$ rm -rf .demo/{CACHE.name}")
    cachekeeper("restore", "demo", "--verify")
    cachekeeper("ls")

    print("\n3. A fresh process uses it.")
    warm = job("warm")
    check(warm["misses"] == 0, "no graph misses")
    check(warm["new_files"] == 0, "nothing was built")

    print("\n4. Damage one byte of a library. torch would load it without noticing.")
    library = max(CACHE.glob("*/*.so"), key=lambda path: path.stat().st_size)
    flip_a_byte(library)
    print(f"   flipped a bit of {library.relative_to(CACHE)}")
    cachekeeper("verify", "demo", "--live", str(CACHE), expect=3)
    cachekeeper("restore", "demo")
    cachekeeper("verify", "demo", "--live", str(CACHE))

    print(f"\n   cold {cold['seconds']:.1f} s, warm {warm['seconds']:.1f} s: {cold['seconds'] / warm['seconds']:.0f}x")
    print(f"   graphs: {warm['hits']} hits, {warm['misses']} misses")
    print("demo passed")


if __name__ == "__main__":
    try:
        demo()
    except Failed as failure:
        sys.exit(f"demo FAILED: {failure}")
