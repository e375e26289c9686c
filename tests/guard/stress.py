"""Threads that compile at the same time, many rounds of it, each in a fresh process: what fails, and how often.

    python -m tests.guard.stress --scenario train --guard off --guard on --rounds 10
    python -m tests.guard.stress --python /path/to/python --scenario all --threads 2 --threads 8 --guard on
    python -m tests.guard.stress --device cuda:0 --device cuda:1 --scenario train --start cold --start warm

A JSON line a round goes to --out, a table of all to stdout. Starts: `cold` in an empty cache directory, `retrace` with
torch's graph caches off and the C++ libraries there, `warm` in a directory that one thread has filled. A round is bad
where something raised, hung, ran uncompiled, or came to other numbers than eager. With --expect clean the exit code is
1 where any round is bad, with --expect bad where a row has no bad one. The scenarios:

"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .stress_job import SCENARIOS, Round

REPOSITORY = Path(__file__).resolve().parents[2]
STARTS = ("cold", "retrace", "warm")
FUNCTIONS = ("mlp", "block", "flex", "checkpointed")


@dataclass(frozen=True)
class Row:
    """Rounds that only differ by chance."""

    python: str
    start: str
    round: Round


@dataclass(frozen=True)
class Result:
    """What the process of a round said, and how long it took from outside; `said` is {} where it died before."""

    row: Row
    seconds: float
    code: int
    said: Mapping[str, Any]
    stderr: str

    @property
    def problems(self) -> list[str]:
        """Each way in which this round went wrong, in words; none: it was clean."""
        said = self.said
        if not said:
            lines = self.stderr.strip().splitlines()
            fatal = [line for line in lines if line.startswith(("Fatal Python error", "Timeout"))]
            return [f"died with {self.code}: {' '.join(fatal[:1] or lines[-1:])}"]
        found = [f"hung: {said['cause']}"] if said["outcome"] == "hung" else []
        found += [error["type"] for error in said["errors"]]
        found += ["uncompiled: " + name.partition(": ")[2] for name, n in said["uncompiled"].items() for _ in range(n)]
        return found + ["wrong: " + text for text in said["wrong"]]


def environment(cache: Path, row: Row) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "TRITON", "CACHEKEEPER", "OMP_", "MKL_"))}
    own = {
        "PYTHONPATH": str(REPOSITORY),
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "CACHEKEEPER_RUNS": str(cache.parent / "runs"),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if row.round.devices == ("cpu",):
        own["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # saves the start of a pool, which has nothing to do on CPU
    caches_off = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    return kept | own | (caches_off if row.start == "retrace" else {})


def one(row: Row, cache: Path) -> Result:
    """One round in a fresh process; a process that does not even end at its own deadline is looked at and killed."""
    with tempfile.TemporaryDirectory(prefix="stress-") as work:
        order, result = Path(work, "round.json"), Path(work, "result.json")
        order.write_text(json.dumps(asdict(row.round)))
        command = [row.python, "-m", "tests.guard.stress_job", str(order), str(result)]
        began = time.monotonic()
        with Path(work, "stderr").open("w+") as stderr:
            process = subprocess.Popen(
                command, env=environment(cache, row), cwd=REPOSITORY, stdout=stderr, stderr=stderr
            )
            try:
                code = process.wait(row.round.deadline + 20)
            except subprocess.TimeoutExpired:
                stderr.write(look_from_outside(process.pid))
                process.kill()
                code = process.wait()
            seconds = time.monotonic() - began
            stderr.seek(0)
            text = stderr.read()
        said = json.loads(result.read_text()) if result.exists() else {}
    return Result(row, round(seconds, 2), code, said, text[-8000:])


def look_from_outside(pid: int) -> str:
    """The stacks of a process that does not answer, where py-spy is installed."""
    spy = shutil.which("py-spy")
    if not spy:
        return "\nno py-spy here\n"
    done = subprocess.run([spy, "dump", "--native", "--pid", str(pid)], capture_output=True, text=True, timeout=60)
    return f"\n{done.stdout}{done.stderr}\n"


class Caches:
    """A directory for each round: an empty one, or one that single threads filled before, which is kept."""

    def __init__(self, work: Path) -> None:
        self.work, self.counter = work, itertools.count()

    def directory(self, row: Row) -> Path:
        if row.start == "cold":
            return self.make(f"cold-{os.getpid()}-{next(self.counter)}")
        key = repr((row.python, row.round.devices, row.round.functions, row.round.shapes))
        name = "filled-" + hashlib.sha256(key.encode()).hexdigest()[:8]
        if not (self.work / name / "full").exists():
            self.fill(row, self.make(name))
        return self.work / name / "cache"

    def fill(self, row: Row, cache: Path) -> None:
        for device in row.round.devices:
            alone = {"scenario": "train", "threads": 1, "devices": (device,), "guard": "off", "deadline": 500.0}
            result = one(Row(row.python, "warm", Round(**{**asdict(row.round), **alone})), cache)
            if result.problems:
                raise RuntimeError(f"one thread alone does not work: {result.problems}\n{result.stderr[-2000:]}")
        (cache.parent / "full").touch()

    def make(self, name: str) -> Path:
        cache = self.work / name / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        return cache


def rounds(rows: Sequence[Row], number: int, work: Path) -> Iterable[Result]:
    """Every row that many times; the rows take turns, so that a slow hour of the machine hits all of them."""
    caches = Caches(work)
    for _ in range(number):
        for row in rows:
            cache = caches.directory(row)
            yield one(row, cache)
            if row.start == "cold":
                shutil.rmtree(cache.parent, ignore_errors=True)


def as_json(result: Result) -> dict[str, Any]:
    row = result.row
    return {
        "python": row.python,
        "start": row.start,
        **asdict(row.round),
        "wall": result.seconds,
        "code": result.code,
        "problems": Counter(result.problems),
        "said": result.said,
        "stderr": result.stderr if result.problems else "",
    }


def table(results: Sequence[Result]) -> str:
    """A line a row: rounds, bad rounds, errors of all calls, hangs, uncompiled calls, wrong numbers, seconds."""
    head = (
        "torch",
        "scenario",
        "start",
        "thr",
        "guard",
        "rounds",
        "bad",
        "errors/calls",
        "hung",
        "uncompiled",
        "wrong",
    )
    lines = [(*head, "median s", "cpu s", "graphs hit/miss")]
    for row in dict.fromkeys(result.row for result in results):
        mine = [result for result in results if result.row == row]
        said = [result.said for result in mine if result.said]
        calls, errors = sum(s["calls"] for s in said), sum(len(s["errors"]) for s in said)
        lines.append(
            (
                said[0]["torch"] if said else row.python,
                row.round.scenario,
                row.start,
                str(row.round.threads),
                row.round.guard,
                str(len(mine)),
                str(sum(bool(result.problems) for result in mine)),
                f"{errors}/{calls}",
                str(sum(s["outcome"] == "hung" for s in said) + len(mine) - len(said)),
                str(sum(sum(s["uncompiled"].values()) for s in said)),
                str(sum(len(s["wrong"]) for s in said)),
                f"{statistics.median(result.seconds for result in mine):.1f}",
                f"{statistics.median([s['cpu_seconds'] for s in said] or [0]):.1f}",
                f"{sum(s['graphs']['hit'] for s in said)}/{sum(s['graphs']['miss'] for s in said)}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def arguments() -> argparse.Namespace:
    scenarios = "\n".join(f"  {name:16} {scenario.__doc__}" for name, scenario in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.guard.stress",
        description=f"{__doc__}{scenarios}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    many = {"action": "append"}
    parser.add_argument("--python", **many, help="an interpreter with torch; may be repeated, default: this one")
    parser.add_argument("--scenario", **many, choices=["all", *SCENARIOS], help="may be repeated, default: train")
    parser.add_argument(
        "--guard", **many, metavar="off|on|first-steps|MEASURE,...", help="may be repeated, default: off and on"
    )
    parser.add_argument("--threads", **many, type=int, help="may be repeated, default: 4")
    parser.add_argument("--start", **many, choices=STARTS, help="may be repeated, default: retrace")
    parser.add_argument("--device", **many, help="cpu, or cuda:N, the threads take turns; default: cpu")
    parser.add_argument("--function", **many, choices=FUNCTIONS, help="may be repeated, default: all of them")
    parser.add_argument("--shape", **many, type=int, help="lengths, may be repeated, default: 128 and 256")
    parser.add_argument("--rounds", type=int, default=1, help="of each row (default: 1)")
    parser.add_argument("--deadline", type=float, default=120, help="seconds until a round counts as hung (120)")
    parser.add_argument("--work", type=Path, help="where caches lie and stay, default: a temporary directory")
    parser.add_argument("--out", type=Path, help="a JSON line a round is appended")
    parser.add_argument("--expect", choices=["clean", "bad"], help="exit with 1 where it is not so")
    return parser.parse_args()


def rows(chosen: argparse.Namespace) -> list[Row]:
    scenarios = chosen.scenario or ["train"]
    if "all" in scenarios:
        scenarios = list(SCENARIOS)
    found = []
    for python, scenario, start, threads, guard in itertools.product(
        chosen.python or [sys.executable],
        scenarios,
        chosen.start or ["retrace"],
        chosen.threads or [4],
        chosen.guard or ["off", "on"],
    ):
        devices, shapes = tuple(chosen.device or ["cpu"]), tuple(chosen.shape or [128, 256])
        functions = tuple(chosen.function or FUNCTIONS)
        # Whether a graph is found shows whether it is the same: this one needs the caches.
        start = "warm" if scenario == "settings" else start
        round_ = Round(scenario, threads, devices, guard, chosen.deadline, functions, shapes)
        found.append(Row(python, start, round_))
    return list(dict.fromkeys(found))


def main() -> int:
    chosen = arguments()
    results = []
    temporary = (
        tempfile.TemporaryDirectory(prefix="stress-") if not chosen.work else contextlib.nullcontext(chosen.work)
    )
    with temporary as work:
        for result in rounds(rows(chosen), chosen.rounds, Path(work)):
            results.append(result)
            if chosen.out:
                with chosen.out.open("a") as file:
                    file.write(json.dumps(as_json(result)) + "\n")
            worst = Counter(result.problems).most_common(3)
            round_ = result.row.round
            print(f"{round_.scenario} {result.row.start} {round_.guard} {result.seconds} s {worst}", file=sys.stderr)
    print(table(results))
    bad = {row: any(r.problems for r in results if r.row == row) for row in (r.row for r in results)}
    unexpected = any(bad.values()) if chosen.expect == "clean" else not all(bad.values())
    return int(bool(chosen.expect) and unexpected)


if __name__ == "__main__":
    sys.exit(main())
