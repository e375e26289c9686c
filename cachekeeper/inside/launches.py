"""Compilers that this process starts, and kernels that Triton compiles in it."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any

_COMPILER = re.compile(
    r"(?:.*-)?(?:g\+\+|gcc|c\+\+|cc|clang\+\+|clang|icpx|icx|nvcc|hipcc|ptxas|cicc|ld\.lld)(?:-[\d.]+)?"
)
_BEFORE = ("ccache", "sccache", "distcc", "env", "nice")
_SHELLS = ("sh", "bash", "dash")
# These ask a compiler for something and build nothing. torch preprocesses a header in every process, to know whether it
# has that header compiled already.
_QUERIES = re.compile(r"-E|-h|--help|--version|-###|-dump\w+|-print.*|-M+")
# These do so where they name no output: Triton runs ptxas with -v.
_TALKING = ("-v", "-V")


class Launches:
    """Gathers what was built, in this process, until it is cleared. An audit hook stays for the life of a process."""

    def __init__(self) -> None:
        self.triton_listens = False
        self.clear()

    def clear(self) -> None:
        """Forget what was gathered."""
        self.compilers: list[str] = []
        self.triton_hits = 0
        self.triton_built = 0

    def install(self) -> None:
        """Notice every compiler from now on."""
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "os.system"):
            command = _words(arguments[-1] if event == "os.system" else arguments[1])
            if len(command) > 2 and os.path.basename(command[0]) in _SHELLS and command[1] == "-c":
                command = _words(command[2])
            if is_build(command):
                self.compilers.append(" ".join([os.path.basename(command[0]), *command[1:]])[:500])

    def listen_to_triton(self) -> None:
        """Notice every kernel from now on, where this Triton tells."""
        self.triton_listens = self._listen()

    def _listen(self) -> bool:
        """Source: triton/knobs.py (`compilation.listener`), triton/compiler/compiler.py."""
        try:
            knobs = importlib.import_module("triton.knobs")
            before = knobs.compilation.listener
        except (ImportError, AttributeError):
            return False

        def listener(*arguments: Any, cache_hit: bool, **others: Any) -> None:
            self.triton_hits += cache_hit
            self.triton_built += not cache_hit
            if before is not None:
                before(*arguments, cache_hit=cache_hit, **others)

        knobs.compilation.listener = listener
        return True


def _words(command: object) -> list[str]:
    if isinstance(command, (str, bytes)):
        try:
            return shlex.split(os.fsdecode(command))
        except ValueError:
            return [os.fsdecode(command)]
    return [os.fsdecode(word) for word in command] if isinstance(command, Sequence) else []


def is_build(command: Sequence[str]) -> bool:
    """True for the command line of a compiler that builds something, and does not only answer a question."""
    names = [os.path.basename(word) for word in command]
    while names and names[0] in _BEFORE:
        del names[0]
    if len(names) < 2 or not _COMPILER.fullmatch(names[0]):
        return False
    asks = any(_QUERIES.fullmatch(word) for word in names)
    return not asks and ("-o" in names or not any(word in _TALKING for word in names))
