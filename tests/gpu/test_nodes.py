"""The many-node recipe on two GPUs, each a node of its own, with NCCL and a store in a bucket."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3 import servers

MULTINODE = Path(__file__).parents[2] / "examples" / "multinode"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU"),
    pytest.mark.timeout(550),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Of every node: a bucket on a real server, and the commands of this Python."""
    tools = tmp_path_factory.mktemp("tools")
    for name, command in (("python", ""), ("cachekeeper", "-m cachekeeper")):
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        (tools / name).chmod(0o755)
    with servers.running(servers.start_seaweedfs()) as server:
        yield {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "CACHEKEEPER_STORE": f"s3://{servers.make_bucket(server)}/caches",
            "CACHEKEEPER_S3_ENDPOINT": server.endpoint,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "CACHEKEEPER_NAME": "drafter",
            "WARM_START_SAVE": "drafter",
            "AWS_MAX_ATTEMPTS": "2",
        }


def run(environment: dict[str, str], work: Path, *nodes: dict[str, str]) -> list[dict]:
    """What each rank reported; a node sees one GPU."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    rendezvous = {"NNODES": str(len(nodes)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NPROC_PER_NODE": "1"}
    started = [
        subprocess.Popen(
            ["bash", "torchrun.sh", "train.py", "--steps", "3"],
            cwd=MULTINODE,
            env={
                **environment,
                **rendezvous,
                "NODE_RANK": str(number),
                "CUDA_VISIBLE_DEVICES": str(number),
                "WARM_START_DIR": str(work / str(number)),
                **node,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, node in enumerate(nodes)
    ]
    said = [process.communicate(timeout=300) for process in started]
    for process, (_, errors) in zip(started, said, strict=True):
        print("\n".join(line for line in errors.splitlines() if "warm_start" in line))
        assert process.returncode == 0, errors[-3000:]
    ranks = [json.loads(line) for output, _ in said for line in output.splitlines() if line.startswith("{")]
    print(*ranks, sep="\n")
    return ranks


def test_two_nodes_start_warm_or_cold_together(environment: dict[str, str], tmp_path: Path):
    probe = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    if int(subprocess.run(probe, capture_output=True, text=True, check=True).stdout) < 2:
        pytest.skip("one GPU")
    cold = run(environment, tmp_path / "cold", {}, {})
    assert all(rank["snapshot"] == "" and rank["misses"] > 0 and rank["new_files"] > 0 for rank in cold)
    warm = run(environment, tmp_path / "warm", {}, {})
    assert len({rank["snapshot"] for rank in warm}) == 1 and all(rank["snapshot"] for rank in warm)
    assert all(rank["misses"] == rank["new_files"] == 0 and rank["hits"] > 0 for rank in warm)
    assert [rank["loss"] for rank in warm] == pytest.approx([rank["loss"] for rank in cold], rel=1e-3)
    away = {"CACHEKEEPER_S3_ENDPOINT": "http://127.0.0.1:9"}
    mixed = run(environment, tmp_path / "mixed", {}, away)
    assert all(rank["snapshot"] == "" and rank["misses"] > 0 for rank in mixed)
    assert all("cold-" in rank["cache"] for rank in mixed)
