"""Processes of a warmup, and what is judged of them. The process is a small script here; with torch: torch_cpu/."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from cachekeeper import warming
from cachekeeper.errors import CachekeeperError, NotFound, UsageError
from cachekeeper.inside.job import Job
from cachekeeper.models import Graph, Proof, ProvedStep, StepReport
from cachekeeper.plans import Axes
from cachekeeper.warming import (
    Listener,
    Run,
    as_log,
    certify,
    direction_notes,
    judge,
    order_notes,
    places,
    process,
    run,
    told,
)

JOB = Job("train.py:step", Axes())
PYTHON = sys.executable
ROWS = (("cuda:0", "train", "8"), ("cuda:1", "train", "8"))

# What every fake process begins with: `tell(event=value)` writes a line, as cachekeeper.inside does.
FAKE = """#!{python}
import json, os, signal, subprocess, sys, threading, time
job, pipe = json.loads(sys.argv[3]), int(sys.argv[4])
def tell(**event): os.write(pipe, json.dumps(event).encode() + b"\\n")
REPORTS = {reports}
PLAN = {{"steps": {rows}, "source": "abc"}}
"""


def report(number: int = 0, **values: object) -> StepReport:
    return StepReport(number, *ROWS[number], **{"calls": 1, "seconds": 1.0, **values})  # type: ignore[arg-type]


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a script the process of the warmup: it stands where Python is expected."""

    def make(body: str) -> None:
        path = tmp_path / "python"
        reports = [asdict(report(number)) for number in range(2)]
        head = FAKE.format(python=sys.executable, reports=reports, rows=json.loads(json.dumps(ROWS)))
        path.write_text(head + body)
        path.chmod(0o755)
        monkeypatch.setattr(process.sys, "executable", str(path))

    return make


class Heard(Listener):
    """Keeps everything."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []
        self.ticks: list[str] = []

    def plan(self, steps: warming.Rows) -> None:
        self.lines.append(("plan", len(steps)))

    def begin(self, number: int) -> None:
        self.lines.append(("begin", number))

    def working(self, seconds: float, compiling: str) -> None:
        self.ticks.append(compiling)

    def end(self, report: StepReport) -> None:
        self.lines.append(("end", report.number))


WHOLE = """
tell(plan=PLAN)
for number, one in enumerate(REPORTS):
    if job["only_device"] in ("", one["device"]) and not job["dry_run"]:
        tell(begin=number); tell(end=one)
tell(done=True)
"""


def test_a_whole_run(child: Callable[[str], None]):
    child(WHOLE)
    heard = Heard()
    assert run(JOB, {}, heard) == Run(ROWS, "abc", (report(0), report(1)))
    assert heard.lines == [("plan", 2), ("begin", 0), ("end", 0), ("begin", 1), ("end", 1)]


def test_a_process_for_each_device(child: Callable[[str], None], tmp_path: Path):
    child(f"open({str(tmp_path / 'log')!r}, 'a').write(job['only_device'] + ';')\n" + WHOLE)
    heard = Heard()
    assert run(JOB, {}, heard, per_device_process=True) == Run(ROWS, "abc", (report(0), report(1)))
    assert heard.lines == [("plan", 2), ("begin", 0), ("end", 0), ("begin", 1), ("end", 1)]
    assert (tmp_path / "log").read_text() == ";cuda:0;cuda:1;"


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_device_that_fails_ends_it_or_not(child: Callable[[str], None], keep_going: bool):
    child("REPORTS[0]['error'] = 'no'\n" + WHOLE)
    found = run(replace(JOB, keep_going=keep_going), {}, Listener(), per_device_process=True)
    assert [one.number for one in found.reports] == ([0, 1] if keep_going else [0])
    assert found.failed


def test_the_environment_of_the_process(child: Callable[[str], None], monkeypatch: pytest.MonkeyPatch):
    child(
        "PLAN['source'] = ' '.join(os.environ.get(n, '-') for n in ('ONE', 'TWO', 'PYTHONPATH'))\n"
        "assert os.read(0, 1) == b''\n" + WHOLE
    )
    monkeypatch.setenv("ONE", "ours")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    here = str(Path(warming.__file__).parents[2])
    assert run(JOB, {"TWO": "theirs"}, Listener()).source == f"ours theirs /mine{os.pathsep}{here}"
    monkeypatch.setenv("PYTHONPATH", here)
    assert run(JOB, {}, Listener()).source == f"ours - {here}"


def test_what_the_process_prints_is_not_our_output(child: Callable[[str], None], capfd: pytest.CaptureFixture[str]):
    child("print('hello', flush=True)\n" + WHOLE)
    run(JOB, {}, Listener())
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "hello\n")


DEATHS = [
    ("tell(plan=PLAN); tell(begin=0); os._exit(9)", "ended with exit code 9 in step cuda:0 train 8"),
    ("tell(plan=PLAN); tell(begin=0); os._exit(0)", "ended with exit code 0 in step cuda:0 train 8"),
    (
        "tell(plan=PLAN); tell(begin=0); tell(end=REPORTS[0]); tell(begin=1); os.kill(os.getpid(), 9)",
        "was killed by SIGKILL in step cuda:1 train 8",
    ),
    ("tell(plan=PLAN); tell(begin=0); os.kill(os.getpid(), 11)", "was killed by SIGSEGV in step cuda:0 train 8"),
    ("tell(plan=PLAN); tell(begin=0); tell(end=REPORTS[0]); os._exit(1)", "ended with exit code 1 between two steps"),
    ("os._exit(3)", "ended with exit code 3 at its start"),
    ('tell(plan=PLAN); tell(begin=0); os.write(pipe, b\'{"end": {"num\'); os._exit(5)', "exit code 5 in step cuda:0"),
]


@pytest.mark.parametrize(("body", "said"), DEATHS)
def test_a_death_is_told_with_its_step(child: Callable[[str], None], body: str, said: str):
    child(body)
    with pytest.raises(CachekeeperError, match=said) as caught:
        run(JOB, {}, Listener())
    # A step that dies is a no, as one that raises; a process that dies outside of them is not.
    assert caught.value.exit_code == (3 if "in step" in said else 1) and caught.value.hint
    assert ("out of memory" in caught.value.hint) == ("SIGKILL" in said)


def test_a_death_on_the_second_device(child: Callable[[str], None]):
    """Its process has reported no step before."""
    child(
        "tell(plan=PLAN)\nif job['only_device'] == 'cuda:1': tell(begin=1); os._exit(9)\n"
        "if job['only_device']: tell(begin=0); tell(end=REPORTS[0])\ntell(done=True)"
    )
    with pytest.raises(CachekeeperError, match="in step cuda:1 train 8"):
        run(JOB, {}, Listener(), per_device_process=True)


@pytest.mark.parametrize(
    ("code", "kind", "exit_code"), [("usage", UsageError, 2), ("not-found", NotFound, 5), ("odd", CachekeeperError, 1)]
)
def test_what_the_process_refuses_is_raised_here(
    child: Callable[[str], None], code: str, kind: type[CachekeeperError], exit_code: int
):
    child(f"tell(failed={{'code': {code!r}, 'message': 'no', 'facts': ['because'], 'hint': 'do'}})\nsys.exit(1)")
    with pytest.raises(kind, match="no") as caught:
        run(JOB, {}, Listener())
    error = caught.value
    assert (error.code, error.exit_code, error.facts, error.hint) == (code, exit_code, ("because",), "do")


def test_silence_is_told_with_what_is_compiled(child: Callable[[str], None], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "_TICK", 0.05)
    child(
        "tell(plan=PLAN); tell(begin=0); tell(compiling='step (a.py:1)'); time.sleep(.5); tell(end=REPORTS[0])" + WHOLE
    )
    heard = Heard()
    run(JOB, {}, heard)
    assert "step (a.py:1)" in heard.ticks


def test_long_lines_in_pieces(child: Callable[[str], None]):
    child(
        "REPORTS[0]['error'] = 'x' * 1_000_000\n"
        "def tell(**event):\n"
        "    data = json.dumps(event).encode() + b'\\n'\n"
        "    while data: data = data[os.write(pipe, data[:99_999]):]\n" + WHOLE
    )
    assert [len(one.error) for one in run(JOB, {}, Listener()).reports] == [1_000_000, 0]


SLEEPER = "subprocess.Popen(['sleep', '300'], pass_fds=(pipe,))"


def pids(tmp_path: Path) -> list[int]:
    return [int(word) for word in (tmp_path / "pids").read_text().split()]


def gone(pid: int) -> bool:
    """True when a process is no more, or only its entry is left."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def wait_until(true: Callable[[], bool], seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


NOTES = "open({path!r}, 'a').write(f'{{os.getpid()}} {{worker.pid}} ')\n"


@pytest.mark.parametrize("end", ["tell(done=True)", "os._exit(7)"])
def test_workers_that_hold_the_pipe_end_too(child: Callable[[str], None], tmp_path: Path, end: str):
    child(f"tell(plan=PLAN); worker = {SLEEPER}\n" + NOTES.format(path=str(tmp_path / "pids")) + end)
    began = time.monotonic()
    with contextlib.suppress(CachekeeperError):
        run(JOB, {}, Listener())
    assert time.monotonic() - began < 10
    assert wait_until(lambda: all(map(gone, pids(tmp_path))))


def test_a_thread_that_never_ends_does_not_keep_us(
    child: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The target started it, and Python waits for it at its end."""
    monkeypatch.setattr(process, "_LINGER", 0.5)
    body = f"worker = {SLEEPER}\n" + NOTES.format(path=str(tmp_path / "pids"))
    child(body + "threading.Thread(target=time.sleep, args=(300,)).start()\n" + WHOLE)
    began = time.monotonic()
    assert len(run(JOB, {}, Listener()).reports) == 2
    assert time.monotonic() - began < 10
    assert wait_until(lambda: all(map(gone, pids(tmp_path))))


class Stops(Listener):
    """Ctrl-C in the first step."""

    def begin(self, number: int) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("deaf", [False, True])
def test_an_interrupt_leaves_no_process(
    child: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaf: bool
):
    monkeypatch.setattr(process, "_GRACE", 1.0)
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if deaf else ""
    body += f"tell(plan=PLAN); worker = {SLEEPER}\n" + NOTES.format(path=str(tmp_path / "pids"))
    child(body + "tell(begin=0); time.sleep(300)")
    with pytest.raises(KeyboardInterrupt):
        run(JOB, {}, Stops())
    found = pids(tmp_path)
    assert len(found) == 2
    assert wait_until(lambda: all(map(gone, found)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_told_to_end_leaves_no_process(
    child: Callable[[str], None], tmp_path: Path, number: signal.Signals
):
    """The whole command, and a signal to it alone."""
    body = f"tell(plan=PLAN); worker = {SLEEPER}\n" + NOTES.format(path=str(tmp_path / "pids"))
    child(body + "tell(begin=0); time.sleep(300)")
    code = (
        "import sys; from cachekeeper.cli import main; "
        f"sys.executable = {str(tmp_path / 'python')!r}; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["warmup", "train.py:step", "--cache-dir", str(tmp_path / "cache")]
    command = subprocess.Popen([PYTHON, "-c", code, *arguments], stderr=subprocess.PIPE, text=True)
    assert wait_until(lambda: (tmp_path / "pids").exists() and len(pids(tmp_path)) == 2, 30)
    time.sleep(0.2)
    command.send_signal(number)
    _, said = command.communicate(timeout=30)
    assert command.returncode == 128 + number, said
    assert "Traceback" not in said
    assert wait_until(lambda: all(map(gone, pids(tmp_path))))


def graph(state: str, key: str = "k", cache: str = "fx", **values: object) -> Graph:
    return Graph(cache, state, key, function="step (train.py:7)", **values)  # type: ignore[arg-type]


HIT = graph("hit")


def test_no_doubt_where_all_is_found():
    bypass = graph("bypass", reason="custom function", cache="aot")
    again = report(1, graphs=(), calls=1)  # compiled in an earlier step
    assert judge((), (report(graphs=(HIT, HIT, bypass)), again)) == {}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"graphs": (HIT, graph("miss", "other"))}, "missed in the graph cache: step (train.py:7)"),
        ({"graphs": (graph("miss", cache="aot"),)}, "missed in the autograd cache: step (train.py:7)"),
        ({"graphs": (graph("miss", reason="a guard failed"),)}, "a guard failed"),
        ({"graphs": (HIT, graph("bypass", reason="custom pass"))}, "never cached, so that every process compiles it"),
        ({"graphs": (HIT,), "new_files": ("fxgraph/ab/fabc/x",)}, "1 file written: 1 fxgraph"),
        (
            {"graphs": (HIT,), "compilers": ("g++ /c/ab/cabc.main.cpp -shared",)},
            "1 compiler started: g++ cabc.main.cpp",
        ),
        ({"graphs": (HIT,), "triton_built": 2}, "Triton compiled 2 kernels"),
        ({"graphs": (HIT,), "fallbacks": ("'step' runs uncompiled: no",)}, "'step' runs uncompiled: no"),
        ({"calls": 0}, "no compiled graph was called"),
        (
            {"graphs": (HIT,), "error": 'Traceback:\n  File "t.py", line 1, in step\n    x\nValueError: no\n'},
            "ValueError: no",
        ),
    ],
)
def test_each_sign_alone_is_a_doubt(values: dict[str, object], said: str):
    found = judge((), (report(0, **values), report(1, graphs=(HIT,))))
    assert list(found) == ["cuda:0 train 8"]
    (line,) = found["cuda:0 train 8"]
    assert said in line


def test_a_miss_says_what_differs():
    old = ("[a] gm: g", "[b] inductor_config[max_autotune]: False", "[c] torch_version: x")
    new = ("[a] gm: g", "[B] inductor_config[max_autotune]: True", "[c] torch_version: x")
    cold = report(graphs=(graph("miss", "one", components=old),))
    warm = report(graphs=(graph("miss", "two", components=new),))
    (line,) = judge((cold,), (warm,))[str(warm)]
    assert line.endswith("against the nearest known: inductor config max_autotune: False -> True")


def test_what_the_cache_is_known_to_hold_explains_a_miss():
    old, new = ("[a] gm: g", "[b] inductor_config[max_autotune]: False"), ("[a] gm: g", "[B] inductor_config[x]: True")
    warm = report(graphs=(graph("miss", "two", components=new),))
    (line,) = judge((), (warm,), [graph("hit", "one", components=old)])[str(warm)]
    assert "against the nearest known: inductor config" in line
    (line,) = judge((), (warm,), [graph("hit", "two", components=new)])[str(warm)]
    assert "this key was there before" in line


def test_the_graphs_of_a_warmup_as_a_job_tells_them():
    missed = graph("miss", "one", components=("[a] gm: g",))
    log = as_log("train.py:step", (report(graphs=(missed,)), report(1, graphs=(HIT,))))
    assert log.process.argv == ("train.py:step",)
    assert [(event.thread, event.graph) for event in log.compiled] == [
        (str(report()), missed),
        (str(report(1)), HIT),
    ]


def test_a_miss_is_explained_by_the_same_cache_only():
    cold = report(graphs=(graph("miss", "one", cache="aot", components=("[a] gm: g",)),))
    warm = report(graphs=(graph("miss", "two", components=("[b] gm: h",)),))
    (line,) = judge((cold,), (warm,))[str(warm)]
    assert "nearest" not in line


def test_a_key_that_was_not_kept():
    cold = report(graphs=(graph("miss", "one"),))
    (line,) = judge((cold,), (report(graphs=(graph("miss", "one"),)),))[str(cold)]
    assert "torch did not save it" in line


STATIC = ("[a] example_inputs[0]: TensorMetadata(shape=torch.Size([4]))",)
SYMBOLIC = ("[b] example_inputs[0]: ('s77',)",)


@pytest.mark.parametrize(
    ("first", "second", "noted"),
    [(STATIC, SYMBOLIC, True), (SYMBOLIC, SYMBOLIC, False), (STATIC, STATIC, False), (SYMBOLIC, STATIC, False)],
)
def test_a_size_that_becomes_dynamic_makes_the_order_matter(first: tuple, second: tuple, noted: bool):
    reports = (
        report(0, graphs=(graph("miss", "one", components=first),)),
        report(1, graphs=(graph("miss", "two", components=second),)),
    )
    assert bool(order_notes(reports)) is noted
    assert order_notes(reports[1:]) == ()


@pytest.mark.parametrize(
    ("directions", "noted"),
    [(["inference"], True), (["inference", "forward", "backward"], False), (["inference", ""], False), ([], False)],
)
def test_a_cache_of_inference_alone_is_said_to_have_no_backward(directions: list[str], noted: bool):
    """C64: warmed under no_grad alone, a job that trains misses."""
    graphs = tuple(graph("miss", str(number), direction=word) for number, word in enumerate(directions))
    autograd = graph("miss", cache="aot")  # which has no direction
    notes = direction_notes((report(graphs=(*graphs, autograd)),))
    assert ["no backward graph" in note for note in notes] == [True] * noted


def test_a_certificate():
    cold = Run(ROWS, "abc", (report(0, seconds=9.87654, new_entries=7), report(1, seconds=2.0)))
    bypass = graph("bypass", cache="aot")
    warm = Run(ROWS, "abc", (report(0, graphs=(HIT, HIT, bypass), calls=3), report(1, seconds=0.5)))
    found = certify(replace(JOB, in_thread=True), True, cold, warm)
    assert found == Proof(
        "train.py:step",
        "abc",
        found.when,
        True,
        True,
        (
            ProvedStep("cuda:0", "train", "8", 9.877, 1.0, 7, 2, 1, 3),
            ProvedStep("cuda:1", "train", "8", 2.0, 0.5, 0, 0, 0, 1),
        ),
    )


def test_a_certificate_of_a_cache_from_elsewhere():
    found = certify(JOB, False, Run(), Run(ROWS, "abc", (report(0, graphs=(HIT,)), report(1))))
    assert [(step.cold_seconds, step.built) for step in found.steps] == [(0.0, 0)] * 2


def test_people_are_not_told_the_components():
    (found,) = told([report(graphs=(graph("hit", components=("[a] gm: g",)),), error="no")])
    assert found == report(graphs=(HIT,), error="no")


def test_a_run_that_failed():
    assert not Run(ROWS, "", (report(0), report(1))).failed
    assert Run(ROWS, "", (report(0),)).failed
    assert Run(ROWS, "", (report(0), report(1, error="no"))).failed
    assert Run(ROWS, "", (report(0), report(1, seconds=0.5))).seconds == 1.5


def test_places_of_a_new_cache(tmp_path: Path):
    variables, watched = places(tmp_path / "cache")
    assert variables["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "cache")
    assert variables["TRITON_CACHE_DIR"] == str(tmp_path / "cache/triton/shared")
    assert watched == {"": str(tmp_path / "cache")}


def test_the_jobs_own_directory_of_kernels_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    for kernels, watched in ((tmp_path / "t", True), (tmp_path / "cache/triton/0", False)):
        monkeypatch.setenv("TRITON_CACHE_DIR", str(kernels))
        variables, directories = places(tmp_path / "cache")
        assert variables["TRITON_CACHE_DIR"] == str(kernels)
        assert ("TRITON_CACHE_DIR" in directories) == watched
    variables, directories = places(tmp_path / "another")
    assert variables["TRITON_CACHE_DIR"] == str(tmp_path / "another/triton/shared")
    assert list(directories) == [""]
