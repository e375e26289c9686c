"""A command run as a child, as if it had been started in our place: its terminal, its signals, its exit code.

The child stays in our process group and inherits every descriptor and every ignored signal, so that Ctrl-C, Ctrl-Z,
job control and isatty are between it and the terminal. Signals are taken one by one with the kernel's word of who
sent them:

- one that the terminal sent has reached the child: it is dropped here (but for a hangup of which only the leader of a
  session is told);
- one that a process sent is passed on, unless the whole group was sent it (`kill %1`, systemd, Slurm): `keeper`, a
  tiny process of the group, shows which is the case;
- where the terminal stops the child, we stop too, so that the shell sees it, and go on with it;
- where we are killed with -9, the keeper does the same to the child.

family     the processes of a job, and how they are ended
keeper     runs by itself, in a process of its own
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import CachekeeperError, NotFound
from .family import end
from .keeper import DONE

__all__ = ["Ended", "die_of", "find_command", "interruptible", "supervise"]

_POLL = 0.2
_SHARED = 0.05
_TERMINAL_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
# What tells of a fault in the process that gets it, or cannot be caught.
_OWN = {"KILL", "STOP", "SEGV", "BUS", "FPE", "ILL", "TRAP", "SYS", "ABRT", "PIPE", "XFSZ", "XCPU"}
_WATCHED = signal.valid_signals() - {getattr(signal, f"SIG{name}") for name in _OWN}
# What comes and goes while a job runs, and is no word to end.
_IN_PASSING = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, *_TERMINAL_STOPS}
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_PR_SET_DUMPABLE = 4


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: exit code, 128 + n for a signal as a shell gives it.
        signal: what killed it, or 0.
        stopped: it was ended because `stop` said so.
        signalled: somebody else sent this process a signal meanwhile, as Ctrl-C or the end of the time that is allowed.
    """

    code: int
    signal: int = 0
    stopped: bool = False
    signalled: bool = False


def find_command(name: str) -> None:
    """Say at once what running a command would say.

    Raises:
        NotFound: with exit code 127, as a shell has it.
        CachekeeperError: with exit code 126, it is there and no program.
    """
    if name and "/" not in name:
        if shutil.which(name) is None:
            raise _not_startable(name, errno.EACCES if shutil.which(name, os.F_OK) else errno.ENOENT)
    elif not os.path.exists(name):
        raise _not_startable(name, errno.ENOENT)
    elif os.path.isdir(name) or not os.access(name, os.X_OK):
        raise _not_startable(name, errno.EACCES)


def supervise(
    command: Sequence[str], environment: Mapping[str, str], *, stop: Callable[[], bool] | None = None, mark: str = ""
) -> Ended:
    """Run a command to its end. Call it in the main thread, with no other thread at work.

    Args:
        environment: all of the child's.
        stop: asked five times a second; True ends the job: SIGTERM to each of its processes, SIGKILL after 10 s.
        mark: "NAME=value" in the environment of the job's processes, by which they are found.

    Raises:
        NotFound, CachekeeperError: it cannot be started; as `find_command`.
        KeyboardInterrupt: before it was started.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, exit codes are lost
    sent: set[tuple[int, int]] = set()
    try:
        if signal.sigpending() & {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}:
            raise KeyboardInterrupt
        child = _spawn(command, environment, before)
        with _Keeper(child) as keeper:
            ended = _Supervision(child, keeper, stop, mark, sent).run()
    finally:
        while info := signal.sigtimedwait(_WATCHED, 0):
            sent.add((info.si_signo, info.si_pid))  # what ended the job is not meant for what comes after it
        signal.signal(signal.SIGCHLD, children)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    others = {number for number, sender in sent if sender != child}
    return replace(ended, signalled=not others <= _IN_PASSING)


def _spawn(command: Sequence[str], environment: Mapping[str, str], mask: set[int]) -> int:
    """Start a command with every descriptor that we inherited, and Python's own changes to signals undone."""
    options: dict[str, Any] = {"setsigmask": mask, "setsigdef": {signal.SIGPIPE, signal.SIGXFSZ}}
    try:
        return os.posix_spawnp(command[0], list(command), environment, **options)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise _not_startable(command[0], error.errno or errno.ENOENT) from None
    # A script without `#!`: a shell runs it as one of its own.
    script = command[0] if "/" in command[0] else shutil.which(command[0]) or command[0]
    return os.posix_spawn("/bin/sh", ["sh", script, *command[1:]], environment, **options)


def _not_startable(name: str, number: int) -> CachekeeperError:
    kind = NotFound if number == errno.ENOENT and not os.path.exists(shutil.which(name) or name) else CachekeeperError
    reason = "command not found" if kind is NotFound and "/" not in name else os.strerror(number)
    if kind is not NotFound and number == errno.ENOENT:
        reason = "what its first line names to run it is not there"
    hint = "is it spelled right, and on PATH?"
    file = shutil.which(name, os.F_OK) or name
    if number == errno.EACCES and os.path.isfile(file):
        hint = f"if it is a program: `chmod +x {shlex.quote(file)}`"
        hint += f", or run it as `python {shlex.quote(file)}`" if file.endswith(".py") else ""
    error = kind(f"cannot run {name or 'an empty command'}: {reason}", hint=hint)
    error.exit_code = _NOT_FOUND if kind is NotFound else _NOT_EXECUTABLE
    error.code = "command-not-found" if kind is NotFound else "command-not-executable"
    return error


class _Keeper:
    """The process of `keeper.py`; without it, a signal is taken to have come to us alone."""

    def __init__(self, child: int) -> None:
        self._child = child
        self.pid = 0

    def __enter__(self) -> _Keeper:
        self._socket, inner = socket.socketpair()
        self._socket.settimeout(1)
        inner.set_inheritable(True)
        script = str(Path(__file__).with_name("keeper.py"))
        command = [sys.executable, "-I", "-S", script, str(inner.fileno()), str(self._child)]
        nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
        with contextlib.suppress(OSError), inner:
            self.pid = os.posix_spawn(
                sys.executable, command, os.environ, file_actions=nothing, setsigmask=signal.valid_signals()
            )
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.send(DONE)
        self._socket.close()
        if self.pid:
            with contextlib.suppress(OSError):
                os.waitpid(self.pid, 0)

    def saw(self, number: int) -> bool:
        """True where the keeper was sent a signal too that we have just got."""
        until = time.monotonic() + _SHARED
        while not (seen := self._pending(number)) and time.monotonic() < until:
            time.sleep(0.002)
        self.forget(number)
        return seen

    def _pending(self, number: int) -> bool:
        try:
            with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:
                sets = [line.split()[1] for line in file if line.startswith(("SigPnd:", "ShdPnd:"))]
        except (OSError, IndexError):
            return False
        return any(int(one, 16) >> (number - 1) & 1 for one in sets)

    def forget(self, number: int) -> None:
        """Wait until a signal is not pending there any more."""
        with contextlib.suppress(OSError):
            self._socket.send(bytes((number,)))
            self._socket.recv(1)


class _Supervision:
    """Waits for a child, and passes on what it would have got in our place.

    Args:
        sent: takes the signals that this process gets, each with its sender.
    """

    def __init__(
        self, child: int, keeper: _Keeper, stop: Callable[[], bool] | None, mark: str, sent: set[tuple[int, int]]
    ) -> None:
        self._child = child
        self._keeper = keeper
        self._stop = stop
        self._mark = mark
        self._sent = sent
        self._stale: set[int] = set()

    def run(self) -> Ended:
        """Wait for the end."""
        while True:
            if (ended := self._look()) is not None:
                return ended
            if self._stop is not None and self._stop():
                end(self._child, self._mark, {os.getpid(), self._keeper.pid})
                ended = self._look(block=True)
                return Ended(ended.code if ended else 0, ended.signal if ended else 0, stopped=True)
            self._wait()

    def _wait(self) -> None:
        """Sleep until there is something to do."""
        limit = 1.0 if self._stale else _POLL if self._stop else None
        info = signal.sigtimedwait(_WATCHED, limit) if limit else signal.sigwaitinfo(_WATCHED)
        if info is None:
            # One sent to each process in turn may have reached the keeper late: it says nothing of the next one.
            while self._stale:
                self._keeper.forget(self._stale.pop())
        elif info.si_signo != signal.SIGCHLD:
            self._sent.add((info.si_signo, info.si_pid))
            if self._is_for_the_child(info):
                with contextlib.suppress(OSError):
                    os.kill(self._child, info.si_signo)
            self._stale.add(info.si_signo)

    def _look(self, block: bool = False) -> Ended | None:
        """How the child ended; where it was stopped by the terminal, this comes back when it goes on."""
        pid, status = os.waitpid(self._child, 0 if block else os.WNOHANG | os.WUNTRACED)
        if not pid:
            return None
        if os.WIFSTOPPED(status):
            self._stop_too(os.WSTOPSIG(status))
            return None
        code = os.waitstatus_to_exitcode(status)
        return Ended(code) if code >= 0 else Ended(128 - code, -code)

    def _stop_too(self, number: int) -> None:
        # Somebody who stops only the child, as a debugger does, lets only the child go on.
        if number not in _TERMINAL_STOPS or signal.SIGCONT in signal.sigpending():
            return
        os.kill(os.getpid(), number)  # pending already, if the terminal sent it: then that is one stop, and not two
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})

    def _is_for_the_child(self, info: signal.struct_siginfo) -> bool:
        if info.si_code > 0:  # the kernel sent it
            return info.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid()
        if info.si_pid == self._child:
            return False
        shared = self._keeper.saw(info.si_signo)
        with contextlib.suppress(OSError):
            return not shared or os.getpgid(self._child) != os.getpgrp()
        return False


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP, too, raise KeyboardInterrupt in the block."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def die_of(number: int) -> None:
    """Die of the signal that a child died of, so that a shell does what it would have done; leave no core of our own.

    Returns where that cannot be: the first process of a container does not die of signals.
    """
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
