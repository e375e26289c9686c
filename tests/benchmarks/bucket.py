"""A bucket to measure with: SeaweedFS, and a proxy that counts, in a process of their own.

The process that measures must stay small (see `measure`), and boto3 is not; the proxy would take its processor time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any


class Bucket:
    """A context manager: the server, with one bucket, is there as long as the block.

    Attributes:
        endpoint: of the server.
        counted: of the proxy in front of it.
        name: of the bucket.
        access_key, secret_key: of an identity that may do all.
    """

    endpoint: str
    counted: str
    name: str
    access_key: str
    secret_key: str

    def __init__(self, work: Path) -> None:
        """Args: work: a directory on the disk that the server is to use."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.bucket"],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"TMPDIR": str(work)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Bucket:
        """Wait for the server."""
        vars(self).update(self._answer())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """End the server."""
        self._process.communicate()

    def stored(self, prefix: str) -> int:
        """The bytes of all objects below a prefix."""
        return int(self._ask("stored", prefix))

    def requests(self) -> dict[str, int]:
        """How many requests of each operation came through the proxy since the last call."""
        return dict(self._ask("requests"))

    def _ask(self, *words: str) -> Any:
        assert self._process.stdin
        print(json.dumps(words), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the S3 server has ended")
        return json.loads(line)


# The other process


def main() -> None:
    """Answer on standard output what is asked on standard input, until that ends."""
    from tests.s3 import servers
    from tests.s3.proxy import Proxy

    with servers.running(servers.start_seaweedfs()) as server, Proxy(server.endpoint) as proxy:
        name = servers.make_bucket(server)
        answers: dict[str, Callable[..., Any]] = {
            "stored": lambda prefix: _stored(servers.kept_client(server), name, prefix),
            "requests": lambda: _requests(proxy),
        }
        _say(
            {
                "endpoint": server.endpoint,
                "counted": proxy.endpoint,
                "name": name,
                "access_key": server.access_key,
                "secret_key": server.secret_key,
            }
        )
        for line in sys.stdin:
            verb, *words = json.loads(line)
            _say(answers[verb](*words))


def _say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def _stored(client: Any, bucket: str, prefix: str) -> int:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return sum(entry["Size"] for page in pages for entry in page.get("Contents", []))


def _requests(proxy: Any) -> Counter[str]:
    counted = Counter(request.operation for request in proxy.requests)
    proxy.requests.clear()
    return counted


if __name__ == "__main__":
    main()
