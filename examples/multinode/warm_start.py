"""Many nodes, one decision: every rank starts from the same restored compile cache, or every rank starts cold.

Once per node, before the ranks:   python warm_start.py      restores, and records what this node has
In every rank, before it compiles: start = warm_start.agree()
In every rank, after the last step: warm_start.save(start)   one rank saves what a cold start compiled

Nothing here stops a job for a restore that failed: it makes the job cold, on every node (WARM_START_STRICT=1 stops it,
on every node). Settings, besides cachekeeper's own:

    WARM_START_DIR      a directory on the node's own disk, of this job alone
    WARM_START_TIMEOUT  seconds that a restore may take, default 600
    WARM_START_STRICT   1: rather fail than start cold
    WARM_START_SAVE     the name to save a cold start under; unset: nothing is saved
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

RECORD = "restored.json"
AGREEMENT_TIMEOUT = timedelta(minutes=5)


@dataclass(frozen=True)
class Restored:
    """What a node has: the full id of what was restored and verified, else "" and why."""

    id: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class Start:
    """What all ranks agreed on.

    Attributes:
        id: the snapshot that every rank starts from; "" for a cold start.
        directory: the cache directory of this rank's node.
    """

    id: str
    directory: Path
    group: Any


def restore_once() -> Restored:
    """Restore CACHEKEEPER_NAME into this node's directory, and record the outcome for the ranks of this node."""
    directory = _directory()
    record = directory / RECORD
    # What an earlier start recorded must not speak for a restore that is killed half-way.
    record.unlink(missing_ok=True)
    restored = _restore(directory / "restored")
    partial = directory / f"{RECORD}.part"
    partial.write_text(json.dumps(asdict(restored)))
    partial.replace(record)
    return restored


def agree() -> Start:
    """Decide with all other ranks; call it after `init_process_group` and before anything is compiled.

    A rank that returns from the gather holds what every rank said, and all decide by the same rule on the same list.
    A rank that does not return raises. So ranks may fail, but never start differently.
    """
    import torch.distributed as dist

    _refuse_too_late()
    # gloo needs no device, and says at once when a rank is gone.
    group = dist.new_group(backend="gloo", timeout=AGREEMENT_TIMEOUT)
    mine = _recorded()
    said: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(said, (mine.id, mine.why, socket.gethostname(), secrets.token_hex(8)), group)
    identifier = agreed(words[0] for words in said)
    if dist.get_rank() == 0:
        print(_sentence(identifier, said), file=sys.stderr, flush=True)
    if identifier:
        os.environ.update(mine.environment)
    elif os.environ.get("WARM_START_STRICT") == "1":
        raise RuntimeError(_sentence(identifier, said))
    else:
        _use_fresh(said[0][3])
    return Start(identifier, Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]), group)


def agreed(ids: Iterable[str]) -> str:
    """The id that all nodes have, or "" where any has another or none."""
    different = set(ids)
    return different.pop() if len(different) == 1 else ""


def save(start: Start) -> None:
    """After a cold start, and when every rank is done: rank 0 saves its node's cache under WARM_START_SAVE."""
    import torch.distributed as dist

    dist.barrier(start.group)
    name = os.environ.get("WARM_START_SAVE")
    if start.id or not name or dist.get_rank() != 0:
        return
    done = _cachekeeper("snapshot", name, "--quiet", "--cache-dir", str(start.directory))
    said = done.stdout.strip() if done.returncode == 0 else f"not saved: {done.stderr.strip()}"
    print(f"warm_start: {name}: {said}", file=sys.stderr, flush=True)


def _directory() -> Path:
    """The node's own directory. What is in it is run as code, so it must be ours."""
    directory = Path(os.environ["WARM_START_DIR"]).absolute()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.lstat().st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to somebody else")
    return directory


def _restore(target: Path) -> Restored:
    limit = float(os.environ.get("WARM_START_TIMEOUT", "600"))
    try:
        done = _cachekeeper("restore", "--verify", "--json", "--cache-dir", str(target), timeout=limit)
        if done.returncode != 0:
            return Restored(why=_reason(done.stderr))
        result = json.loads(done.stdout)
        return Restored(result["snapshot"]["id"], result["environment"])
    except subprocess.TimeoutExpired:
        return Restored(why=f"the restore did not end in {limit:g} s")
    except (OSError, ValueError, LookupError) as error:
        return Restored(why=f"{type(error).__name__}: {error}")


def _cachekeeper(*arguments: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    # This very Python: what fits is decided for the torch that it sees.
    command = [sys.executable, "-m", "cachekeeper", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def _reason(stderr: str) -> str:
    last = (stderr.strip().splitlines() or ["no reason given"])[-1]
    try:
        error = json.loads(last)
        return "; ".join([str(error["message"]), *(" ".join(fact.split()) for fact in error["facts"][:3])])
    except (ValueError, LookupError, TypeError):
        return last


def _recorded() -> Restored:
    """What `restore_once` recorded on this node; nothing where it was not run, or was killed."""
    try:
        return Restored(**json.loads((_directory() / RECORD).read_text()))
    except (OSError, ValueError, TypeError) as error:
        return Restored(why=f"no record of a restore ({type(error).__name__})")


def _refuse_too_late() -> None:
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo and dynamo.counters["frames"]["total"]:
        raise RuntimeError("warm_start.agree() comes before the first compiled call")


def _use_fresh(token: str) -> None:
    """An empty directory that the ranks of a node share, never the one that was restored into."""
    cold = _directory() / f"cold-{token}"
    cold.mkdir(mode=0o700, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cold)
    os.environ["TRITON_CACHE_DIR"] = str(cold / "triton" / "0")


def _sentence(identifier: str, said: Iterable[tuple[str, str, str, str]]) -> str:
    if identifier:
        return f"warm_start: warm, every node restored {identifier[:12]}"
    nodes = dict.fromkeys(f"{host}: {has[:12] or why}" for has, why, host, _ in said)
    return "warm_start: cold on every node, as they do not all have the same snapshot:\n  " + "\n  ".join(nodes)


if __name__ == "__main__":
    here = restore_once()
    print(f"warm_start: restored {here.id}" if here.id else f"warm_start: not restored: {here.why}", file=sys.stderr)
