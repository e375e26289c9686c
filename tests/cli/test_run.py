"""cachekeeper run as a person meets it: in a process of its own, with real jobs, and no torch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cachekeeper import runs
from cachekeeper.watching import watcher_of
from tests.test_supervision import TELLING, Terminal, gone, terminal
from tests.watching.guarding import wait_for

__all__ = ["terminal"]

CACHEKEEPER = [sys.executable, "-m", "cachekeeper"]


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("CACHEKEEPER_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("CACHEKEEPER_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("CACHEKEEPER_WAIT", "0")
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "work"


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """The command, with a name unless the first argument is None."""
    command = [*CACHEKEEPER, "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload]


SAY = "import sys; print(sys.argv[1:]); print('err', file=sys.stderr); sys.exit(5)"


def test_standard_output_is_the_jobs_alone():
    done = run("--name", "x", "--", sys.executable, "-c", SAY, "--name", "y", "--", "-h")
    assert (done.returncode, done.stdout) == (5, "['--name', 'y', '--', '-h']\n")
    first, hint, err, *rest = done.stderr.splitlines()
    assert first.startswith("warning: nothing restored, the job starts cold: no snapshots in file://")
    assert hint.startswith("  hint: ") and err == "err"
    assert re.fullmatch(r"Run       \w{6}: exit 5 after \d\.\d s, nothing restored", rest[0])
    assert rest[1:] == ["Graphs    none: no process imported torch"]


def test_after_the_first_word_all_is_the_commands():
    done = run("--quiet", sys.executable, "-c", SAY, "--json", "--quiet", "--help")
    assert (done.returncode, done.stdout, done.stderr) == (5, "['--json', '--quiet', '--help']\n", "err\n")


def test_the_report(tmp_path: Path):
    done = run("--name", "x", "--report", "said.json", "--json", "--", sys.executable, "-c", SAY)
    assert (done.returncode, done.stdout, done.stderr) == (5, "[]\n", "err\n")
    document = json.loads(Path("said.json").read_text())
    assert document["schema"] == "cachekeeper.run/1" and document["exit_code"] == 5
    assert document["command"][0] == sys.executable and document["cache_dir"] == f"{tmp_path}/inductor"
    assert [trouble["code"] for trouble in document["troubles"]] == ["not-found"]
    assert (document["python"], document["torch"], document["new_entries"]) == (True, False, 0)
    assert document["compiled"]["totals"]["hits"] == 0
    said = run("--json", "--", "true")
    assert said.returncode == 2 and "--json needs --report FILE" in said.stderr
    said = run("--report", "/no/such/file", "--", "true")
    assert said.returncode == 0 and "no report: cannot write /no/such/file: No such file or" in said.stderr
    done = run("--strict", "--report", "/no/such/file", "--", "sh", "-c", "echo started")
    assert (done.returncode, done.stdout) == (
        125,
        "",
    ) and "cannot write the report /no/such/file: No such" in done.stderr
    Path("link").symlink_to("new.json")
    done = run("--strict", "--report", "link", "--", "sh", "-c", "test -L link && ! test -e new.json")
    assert done.returncode == 0 and json.loads(Path("new.json").read_text())["job_exit_code"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "error[usage]: there is no command to run"),
        (["--nmae", "x", "true"], 2, "error[usage]: No such option"),
        (["--assert-warm", "--no-guard", "true"], 2, "error[usage]: assert_warm needs the guard"),
        (["--", "no-such-command"], 127, "error[command-not-found]: cannot run no-such-command: command not found"),
        (["--", "/etc/passwd"], 126, "error[command-not-executable]: cannot run /etc/passwd: Permission denied"),
        (["--no-guard", "--fallback", "warn", "true"], 2, "error[usage]: fallback is for the guard"),
        (["--strict", "--name", "x", "true"], 125, "error[not-found]: no snapshots in"),
        (
            ["--store", "ftp://x", "--name", "x", "true"],
            0,
            "warning: nothing restored, the job starts cold: no store",
        ),
    ],
)
def test_exit_codes_of_our_own(arguments: list[str], code: int, words: str):
    done = run(*arguments)
    assert done.returncode == code and done.stderr.startswith(words) and done.stdout == "", done


def test_a_job_that_a_signal_ends():
    """A shell sees what it would have seen."""
    script = " ".join(f"'{word}'" for word in CACHEKEEPER) + " run -q sh -c 'kill -SEGV $$'; echo $?"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.stdout == "139\n" and "Segmentation fault" in done.stderr
    assert runs.find().exit_code == 139
    done = run("sh", "-c", "kill -9 $$")
    assert done.returncode == -9 and ": killed by signal 9 after " in done.stderr


def test_who_reads_our_words_may_go(tmp_path: Path):
    """No terminal, no standard error, a closed pipe: the job's exit code comes back."""
    command = " ".join(f"'{word}'" for word in CACHEKEEPER)
    for plumbing in ("<&- >&- 2>&-", "2>/dev/full", "2>&1 | head -c 0; exit ${PIPESTATUS[0]}"):
        done = subprocess.run(["bash", "-c", f"{command} run --name x sh -c 'exit 6' {plumbing}"])
        assert done.returncode == 6, plumbing


def test_a_python_that_does_not_load_the_guard():
    done = run("--no-restore", sys.executable, "-I", "-c", "pass")
    assert "no Python process loaded the guard (Python 3.10 or later, without -I, -E, -S)" in " ".join(
        done.stderr.split()
    )
    assert "Graphs" not in run("--no-restore", "--no-guard", sys.executable, "-c", "pass").stderr


def test_a_signal_for_us_is_the_jobs():
    """Slurm, Kubernetes: we get it, the job gets it; the summary is said all the same."""
    process = subprocess.Popen(
        [*CACHEKEEPER, "run", *TELLING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    with process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read(9) == "<SIGTERM>"
        process.send_signal(signal.SIGRTMIN)
        assert process.wait(10) == 7 and "exit 7" in process.stderr.read()


def test_in_a_terminal(terminal):
    """Ctrl-C reaches the job once, and we outlive it to say what there is to say."""
    shell: Terminal = terminal([*CACHEKEEPER, "run", *TELLING])
    shell.until(r"ready (\d+) \[True, True, True\] 97")
    shell.type("\x03")
    shell.until("<SIGINT>")
    assert "<" not in shell.for_a_while()
    os.kill(shell.pid, signal.SIGRTMIN)
    shell.until(r"exit 7 after \d+(\.\d)? s")
    assert shell.code() == 7


def test_an_interrupt_ends_the_script_that_we_are_in(terminal):
    job = "import signal; signal.signal(2, signal.SIG_DFL); print(1 + 1, flush=True); signal.pause()"
    script = " ".join(f"'{word}'" for word in [*CACHEKEEPER, "run", sys.executable, "-c", job]) + "; echo goes on"
    shell: Terminal = terminal(["bash", "-c", script])
    shell.until("2")
    shell.type("\x03")
    shell.until("killed by signal 2")
    assert "goes on" not in shell.for_a_while() and shell.code() == -signal.SIGINT


def test_nohup_and_the_background(work: Path):
    script = (
        f"nohup {' '.join(CACHEKEEPER)} run -q sh -c 'echo ready; sleep 0.3; echo late > done' > out 2>&1 & echo $!"
    )
    pid = int(subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout)
    deadline = time.monotonic() + 20
    while not (work / "out").exists() or "ready" not in (work / "out").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(pid, signal.SIGHUP)
    assert gone(pid) and (work / "done").read_text() == "late\n"


def test_a_run_in_a_run(work: Path):
    """Each job has the guard once, and its own run."""
    show = "import os; print(os.environ['PYTHONPATH'].count('guard/startup'), os.environ['CACHEKEEPER_RUN'])"
    inner = [*CACHEKEEPER, "run", "-q", "--", sys.executable, "-c", show]
    done = run("-q", "--", *inner)
    number, directory = done.stdout.split()
    assert number == "1"
    assert {run.command[0] for run in runs.runs()} == {sys.executable} and len(runs.runs()) == 2
    assert directory == str(runs.find().directory)


def test_where_nothing_was_asserted_whose_exit_code_it_is():
    done = run("--no-restore", "--assert-warm", "--strict", "true")
    assert done.returncode == 3 and ": exit 3 (the job: 0) after " in done.stderr
    assert "warning: nothing was asserted: no process imported torch under the guard\n" in done.stderr


def test_with_telemetry_off_nothing_is_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_TELEMETRY", "0")
    assert "\nGraphs    not counted: telemetry is off\n" in run("--no-restore", "--", "true").stderr[-99:]
    monkeypatch.setenv("CACHEKEEPER_TELEMETRY", "1")
    monkeypatch.setenv("CACHEKEEPER_RUNS", "/proc/no/such")
    assert "\nGraphs    not counted: nothing is kept of this run\n" in run("--no-restore", "--", "true").stderr


TELLS = """
import os
from pathlib import Path
from cachekeeper.guard.recorder import Recorder
from cachekeeper.telemetry import Fallback, Note
recorder = Recorder(Path(os.environ["CACHEKEEPER_RUN"]))
for number in range(3):
    recorder.record(Fallback(1.0, "worker", f"step{number}", "the limit of recompiles is reached " * 4 + "ende"))
recorder.record(Note(1.0, "worker", "other settings than the main thread: " + "much " * 30 + "last"))
recorder.close()
"""


WARM = """
import os
from pathlib import Path
from cachekeeper.guard.recorder import Recorder
from cachekeeper.models import Graph
from cachekeeper.telemetry import Compiled, Frame
Path(os.environ["CACHEKEEPER_RUN"], "loaded-torch").touch()
recorder = Recorder(Path(os.environ["CACHEKEEPER_RUN"]))
recorder.record(Compiled(1.0, "worker", Graph("fx", STATE, "f0")))
recorder.record(Frame(1.0, "worker", "step", 13.0))
recorder.close()
"""


def test_a_warm_run_is_not_called_compiling():
    for state, said in (
        ("hit", "Tracing   13 s in 1 process, every graph found"),
        ("miss", "Compiling 13 s in 1 process"),
    ):
        script = WARM.replace("STATE", repr(state))
        assert (
            f"\n{said}; no entry appeared in the cache\n"
            in run("--no-restore", "--", sys.executable, "-c", script).stderr
        )


def test_no_line_is_cut():
    """However long, and whether a terminal is there or not."""
    said = run("--no-restore", "--", sys.executable, "-c", TELLS).stderr
    lines = said.splitlines()
    assert "..." not in said and max(map(len, lines)) <= 80
    start = next(number for number, line in enumerate(lines) if line.startswith("warning: UNCOMPILED step0: "))
    assert lines[start + 2].endswith("ende (and 2 more)") and lines[start + 2].startswith(" " * 9)
    assert "last" in said and said.count(f"hint: `cachekeeper stats {runs.short(runs.find().id)}`") == 1


def test_of_many_facts_how_many_more_there_are(command, saved: str, home: Path):
    for pack in (home / "store").glob("packs/*"):
        pack.unlink()
    said = command("run", "--name", "drafter", "--cache-dir", home / "new", "--no-guard", "--", "true").err
    [more] = re.findall(r"^  and (\d+) more$", said, re.MULTILINE)
    assert int(more) > 1 and said.count("\n  ") >= 4


def test_what_a_watch_put_back(command, saved: str, home: Path, capfd: pytest.CaptureFixture[str]):
    live = home / "new"
    wait = f"while [ $(ls -d {live}/fxgraph/*/* 2> /dev/null | wc -l) -lt 2 ]; do sleep 0.02; done"
    options = ("--name", "drafter", "--cache-dir", live, "--no-guard", "--watch")
    said = command("run", *options, "--", "sh", "-c", f"rm -rf {live}/fxgraph; {wait}")
    assert said.code == 0 and "\nWatch     put back 2 entries, 5.9 KiB\n" in said.err
    assert "\nWatch     nothing had to be put back\n" in command("run", *options, "--", "true").err
    packs = home / "store" / "packs"
    wipe = f"rm -r {packs} {live}/fxgraph; sleep 1.5"
    said = command("run", *options, "--report", home / "said.json", "--", "sh", "-c", wipe)
    assert (
        "\nWatch     nothing had to be put back; 2 entries could not be put back\nnote: cannot put back 2" in said.err
    )
    assert max(map(len, said.err.splitlines())) <= 80 or str(home) in said.err
    watched = json.loads((home / "said.json").read_text())["watched"]
    assert len(watched["lost"]) == 2 and watched["entries"] == 0


RUNS = """
import sys
from pathlib import Path
from cachekeeper.verbs import restore
from cachekeeper.verbs.run import run
from tests import samples
restore.fingerprint = lambda **_: samples.fingerprint()
run(("sleep", "60"), name="drafter", cache_dir=sys.argv[1], watch=True)
"""


def test_a_watch_ends_with_the_run_that_is_killed(command, saved: str, home: Path):
    live = home / "new"
    with subprocess.Popen([sys.executable, "-c", RUNS, str(live)]) as process:
        wait_for(lambda: (watcher_of(live) or 0) > 0)
        pid = watcher_of(live)
        assert pid and pid != process.pid
        process.kill()
    wait_for(lambda: watcher_of(live) is None)
    assert gone(pid)


def test_a_job_that_fails_on_a_restored_cache_may_be_tried_cold(command, saved: str, home: Path):
    """C55."""
    failed = command("run", "--name", "drafter", "--no-guard", "--", "sh", "-c", "exit 5")
    assert failed.code == 5 and "is it the cache? `run --retry-cold` tries; or `cachekeeper clear`" in failed.err
    for arguments in (["--name", "drafter", "--", "true"], ["--no-restore", "--", "sh", "-c", "exit 5"]):
        assert "is it the cache?" not in command("run", "--no-guard", *arguments).err


RAISES = """
import os, sys
from pathlib import Path
live = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
warm = any(live.rglob("*.so"))
from cachekeeper.testing import make_cache
make_cache(live, seed=8, kernels=1, graphs=1)
sys.exit(4 if warm else int(sys.argv[1]))
"""


@pytest.mark.parametrize("saving", [False, True])
def test_two_attempts_and_what_they_say_of_the_snapshot(command, saved: str, home: Path, saving: bool):
    """C55: warm raises, cold works."""
    live, options = home / "new", ("--snapshot-on-success",) * saving
    arguments = ("--name", "drafter", "--cache-dir", live, "--no-guard", "--retry-cold", *options)
    said = command("run", *arguments, "--report", home / "said.json", "--", sys.executable, "-c", RAISES, "0")
    words = " ".join(said.err.split())
    [trash] = (home / ".new.cleared").iterdir()
    assert said.code == 0 and f"its cache is put aside in {trash}, and it starts once more, cold" in words
    assert re.search(rf"First +\w{{6}}: exit 4 after \d\.\d s, restored {saved[:8]} \(drafter\)\nRun ", said.err)
    assert f"THE SNAPSHOT {saved[:8]} (drafter) MAKES THE JOB FAIL: exit 4 with it, exit 0 on an empty" in words
    assert f"`cachekeeper verify {saved[:8]} --replay TARGET`" in words
    way_out = "`cachekeeper rm 'drafter@{1}'` takes the other" if saving else f"`cachekeeper rm {saved[:8]}` takes it"
    assert way_out in words and ("ok Saved" in words) == saving
    retried = json.loads((home / "said.json").read_text())["retried"]
    assert (retried["first"]["exit_code"], retried["item"], retried["others"]) == (4, trash.name, 0)
    assert f"note: {trash.name}: run " in command("clear", live, "--list").out
    assert command("clear", live, "--undo").code == 0


def test_two_attempts_that_fail(command, saved: str, home: Path):
    arguments = ("--name", "drafter", "--cache-dir", home / "new", "--no-guard", "--retry-cold")
    said = command("run", *arguments, "--", sys.executable, "-c", RAISES, "6")
    assert said.code == 6 and f"`cachekeeper clear {home}/new --undo` brings back the first" in said.err
    assert "MAKES THE JOB FAIL" not in said.err and "is it the cache?" not in said.err
    alone = command("run", "--cache-dir", home / "new", "--no-restore", *arguments[4:], "--", "sh", "-c", "exit 4")
    assert alone.code == 4 and "First" in alone.err
    assert command("run", "--retry-within", "5min", "--", "true").code == 2
