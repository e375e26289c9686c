"""A supervised command behaves as if it had been started alone: with a real terminal, a real shell, real signals."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cachekeeper.errors import CachekeeperError
from cachekeeper.supervision import find_command
from cachekeeper.supervision.family import end, members

REPOSITORY = Path(__file__).parents[1]
RUN = """
import os, sys
from cachekeeper.supervision import die_of, supervise
ended = supervise(sys.argv[1:], dict(os.environ))
if ended.signal:
    die_of(ended.signal)
sys.exit(ended.code)
"""
# Says which signals it gets, each time; ends with 7 when it gets the one for real-time use.
JOB = """
import os, signal, sys, time
def tell(number, frame):
    os.write(1, b"<%s>" % signal.Signals(number).name.encode())
    if number == signal.SIGRTMIN:
        os._exit(7)
for name in "INT TERM HUP QUIT USR1 USR2 WINCH CONT RTMIN".split():
    signal.signal(getattr(signal, "SIG" + name), tell)
size = os.get_terminal_size(0) if os.isatty(0) else None
print("ready", os.getpid(), [os.isatty(n) for n in range(3)], size and size.columns, flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    time.sleep(1)
"""
SUPERVISED = [sys.executable, "-c", RUN]
TELLING = [sys.executable, "-c", JOB]


@pytest.fixture(autouse=True)
def this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


class Terminal:
    """A command in a session of its own, with a terminal of 97 columns that we hold the other end of."""

    def __init__(self, command: Sequence[str]) -> None:
        self.pid, self.end = pty.fork()
        if not self.pid:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 97, 0, 0))
            os.execvp(command[0], list(command))
        self.text = ""

    def until(self, pattern: str) -> re.Match[str]:
        """Read until a pattern is there, and forget what is before its end."""
        deadline = time.monotonic() + 20
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < deadline, self.text
            self._read(0.1)
        self.text = self.text[found.end() :]
        return found

    def for_a_while(self) -> str:
        """What it says in the next moment."""
        deadline = time.monotonic() + 0.4
        while time.monotonic() < deadline:
            self._read(0.1)
        return self.text

    def _read(self, seconds: float) -> None:
        import select

        if select.select([self.end], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                self.text += os.read(self.end, 1 << 16).decode(errors="replace")

    def type(self, text: str) -> None:
        os.write(self.end, text.encode())

    def code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal() -> Iterator[Callable[[Sequence[str]], Terminal]]:
    made: list[Terminal] = []

    def make(command: Sequence[str]) -> Terminal:
        made.append(Terminal(command))
        return made[-1]

    yield make
    for one in made:
        with contextlib.suppress(OSError):
            os.close(one.end)
        with contextlib.suppress(OSError):
            os.killpg(one.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(one.pid, 0)


def test_the_terminal_is_the_jobs_own(terminal):
    shell = terminal([*SUPERVISED, *TELLING])
    job = int(shell.until(r"ready (\d+) \[True, True, True\] 97")[1])
    assert os.getpgid(job) == shell.pid == os.tcgetpgrp(shell.end)
    shell.type("\x03")
    shell.until("<SIGINT>")
    shell.type("\x1c")
    shell.until("<SIGQUIT>")
    fcntl.ioctl(shell.end, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
    shell.until("<SIGWINCH>")
    assert "<" not in shell.for_a_while()  # none of them twice
    os.kill(shell.pid, signal.SIGRTMIN)
    assert shell.code() == 7


def test_a_signal_for_us_alone_is_passed_on_and_one_for_the_group_is_not(terminal):
    shell = terminal([*SUPERVISED, *TELLING])
    shell.until(r"ready \d+")
    for send in (os.kill, os.killpg, os.kill, os.killpg):
        for name in ("SIGTERM", "SIGUSR1", "SIGHUP", "SIGINT"):
            send(shell.pid, signal.Signals[name])
            shell.until(f"<{name}>")
    assert "<" not in shell.for_a_while()


def test_a_hangup_reaches_the_job_of_a_leader_of_a_session(terminal, tmp_path: Path):
    job = f"trap 'echo gone > {tmp_path}/told; exit' HUP; echo ready; while :; do sleep 0.1; done"
    shell = terminal([*SUPERVISED, "bash", "-c", job])
    shell.until("ready")
    os.close(shell.end)
    shell.code()
    assert (tmp_path / "told").read_text() == "gone\n"


def test_job_control_of_a_shell(terminal):
    shell = terminal(["bash", "--norc", "--noprofile", "--noediting", "-i"])
    quoted = " ".join(f"'{word}'" for word in [*SUPERVISED, *TELLING])
    shell.type(f"PS1='$ '; stty -echo; {quoted}\n")
    job = int(shell.until(r"ready (\d+)")[1])
    shell.type("\x1a")
    shell.until("Stopped")
    assert state(job) == "T"
    shell.type("fg\n")
    shell.until("<SIGCONT>")
    shell.type("\x1a")
    shell.until("Stopped")
    shell.type("bg\n")
    shell.until("<SIGCONT>")
    shell.type("kill -USR2 %1\n")
    shell.until("<SIGUSR2>")
    shell.type("kill %1\n")
    shell.until("<SIGTERM>")
    assert not re.search("<SIG(USR2|TERM|CONT)>", shell.for_a_while())
    shell.type("fg\n")
    while os.tcgetpgrp(shell.end) != os.getpgid(job):
        time.sleep(0.01)
    shell.type("\x1a")
    shell.until("Stopped")
    shell.type("kill -CONT $(jobs -p)\n")  # us alone: the job goes on, too
    shell.until("<SIGCONT>")
    shell.type("kill -RTMIN %1; wait %1; echo code $?\n")
    shell.until("code 7")
    shell.type("exit\n")
    assert shell.code() == 0


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextlib.contextmanager
def started(*command: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    with subprocess.Popen(
        [*SUPERVISED, *command], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout
        yield process, int(process.stdout.readline().split()[1])


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if state(pid) == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_kill_9_of_us_is_kill_9_of_the_job():
    with started(*TELLING) as (process, job):
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert gone(job)
        assert process.stdout and process.stdout.read() == ""  # the keeper holds no pipe, and is gone


def test_a_stop_of_the_job_alone_is_no_stop_of_us():
    with started(*TELLING) as (process, job):
        os.kill(job, signal.SIGSTOP)
        time.sleep(0.1)
        assert state(job) == "T" and state(process.pid) == "S"
        os.kill(job, signal.SIGCONT)
        os.kill(process.pid, signal.SIGRTMIN)
        assert process.wait(10) == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL, signal.SIGINT])
def test_the_death_of_the_job_is_ours(number: int, tmp_path: Path):
    done = subprocess.run([*SUPERVISED, "sh", "-c", f"kill -{number} $$"], cwd=tmp_path)
    assert done.returncode == -number
    assert list(tmp_path.iterdir()) == []  # no core


def without_those_of_libc(text: str) -> str:
    """A line of /proc/self/status without what the C library ignores of its own, 32 and 33, in what it starts."""

    def masked(match: re.Match[str]) -> str:
        return f"SigIgn:\t{int(match[1], 16) & ~(0b11 << 31):016x}"

    return re.sub(r"SigIgn:\t(\w+)", masked, text)


def test_descriptors_and_ignored_signals_are_inherited(tmp_path: Path):
    """Under nohup, in the background of a script, without standard input, with a descriptor of the shell's own."""
    show = "for n in 0 5; do test -e /proc/$$/fd/$n && echo has $n; done; grep -E 'Sig(Blk|Ign)' /proc/self/status"
    quoted = " ".join(f"'{word}'" for word in SUPERVISED)
    script = """trap '' HUP; {} sh -c "$1" 5</dev/null <&- & wait $!"""
    plain, ours = (
        subprocess.run(["sh", "-c", script.format(prefix), "sh", show], capture_output=True, text=True).stdout
        for prefix in ("", quoted)
    )
    ours, plain = (without_those_of_libc(text) for text in (ours, plain))
    assert ours == plain
    assert "has 5\n" in plain and "has 0" not in plain and "SigIgn:\t0000000000000007" in plain


def test_a_script_without_a_first_line_is_run_by_a_shell(tmp_path: Path):
    (tmp_path / "script").write_text("echo $0 $1\n")
    (tmp_path / "script").chmod(0o755)
    done = subprocess.run([*SUPERVISED, f"{tmp_path}/script", "a b"], capture_output=True, text=True)
    assert done.stdout == f"{tmp_path}/script a b\n"


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("no-such-command", 127, "cannot run no-such-command: command not found"),
        ("./no/such", 127, "cannot run ./no/such: No such file or directory"),
        ("", 127, "cannot run an empty command"),
        ("/etc", 126, "cannot run /etc: Permission denied"),
        ("/etc/passwd", 126, "cannot run /etc/passwd: Permission denied"),
    ],
)
def test_what_cannot_be_run(name: str, code: int, words: str):
    with pytest.raises(CachekeeperError) as caught:
        find_command(name)
    assert caught.value.exit_code == code and caught.value.message.startswith(words)


@pytest.mark.parametrize(("name", "more"), [("go.sh", ""), ("a b.py", ", or run it as `python '{}'`")])
def test_a_file_that_is_not_executable(name: str, more: str, tmp_path: Path):
    file = tmp_path / name
    file.touch(0o644)
    with pytest.raises(CachekeeperError) as caught:
        find_command(str(file))
    assert caught.value.exit_code == 126
    assert caught.value.hint == f"if it is a program: `chmod +x {shlex.quote(str(file))}`" + more.format(file)


def test_a_missing_interpreter(tmp_path: Path):
    (tmp_path / "script").write_text("#!/no/such\n")
    (tmp_path / "script").chmod(0o755)
    find_command(f"{tmp_path}/script")
    done = subprocess.run([*SUPERVISED, f"{tmp_path}/script"], capture_output=True, text=True)
    assert "what its first line names to run it is not there" in done.stderr


def test_a_family_is_ended_and_nobody_else():
    """Also one that has left the group and the session, and one that does not listen to SIGTERM."""
    script = "trap '' TERM; MARK=x setsid sleep 60 & sleep 60 & echo ready; wait; wait"
    popen = subprocess.Popen
    with popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as child, popen(["sleep", "60"]) as other:
        assert child.stdout and child.stdout.readline() == "ready\n"
        time.sleep(0.1)
        family = members(child.pid, "MARK=x")
        assert len(family) == 3 and other.pid not in family
        end(child.pid, "MARK=x", {other.pid}, grace=0.3)
        assert child.wait() == -signal.SIGKILL and other.poll() is None
        assert all(gone(pid) for pid in family)
        other.kill()


@pytest.mark.parametrize(
    ("script", "signalled"),
    [
        ("exit 4", False),
        ("trap '' USR1; kill -USR1 $PPID; exit 4", False),  # what the job itself sends is its own affair
        ("kill -WINCH $PPID; exit 4", False),
        ("trap '' USR1; sh -c 'kill -USR1 '$PPID; exit 4", True),
        ("trap '' USR1; sh -c 'kill -USR1 '$PPID; sleep 0.3; exit 4", True),
        ("sh -c 'kill -WINCH '$PPID; sleep 0.3; exit 4", False),
    ],
)
def test_whether_somebody_else_sent_a_signal(script: str, signalled: bool):
    code = RUN.partition("if ended")[0] + "print(ended.signalled)"
    done = subprocess.run([sys.executable, "-c", code, "sh", "-c", script], capture_output=True, text=True)
    assert done.stdout == f"{signalled}\n", done
