"""Runs the training program of the recipes, and notes each file below a directory `restored` that its process opens.

    watched.py LOG [train's arguments]     one line a file is added to LOG

The rank named by DIES is killed half-way through the agreement: the sizes were exchanged, what it says was not.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

MULTINODE = Path(__file__).resolve().parents[2] / "examples" / "multinode"
PATH_ARGUMENT = {"open": 0, "os.listdir": 0, "os.scandir": 0, "ctypes.dlopen": 0, "import": 1}


def watch(log: str) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in PATH_ARGUMENT:
            path = str(arguments[PATH_ARGUMENT[event]])
            if "/restored/" in path:
                os.write(handle, f"{path}\n".encode())

    sys.addaudithook(hook)


def die_in_the_second_gather() -> None:
    from torch.distributed import distributed_c10d

    gather, calls = distributed_c10d.all_gather, []

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return gather(*arguments, **options)

    distributed_c10d.all_gather = counted


if __name__ == "__main__":
    watch(sys.argv.pop(1))
    if os.environ.get("DIES") == os.environ["RANK"]:
        die_in_the_second_gather()
    sys.path.insert(0, str(MULTINODE))
    runpy.run_path(str(MULTINODE / "train.py"), run_name="__main__")
