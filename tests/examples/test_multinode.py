"""Nodes agree or all start cold: the recipes of examples/multinode with real processes, two nodes on the loopback.

A node is a process of its own with a directory and a store of its own; its ranks are torchrun's.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import cachekeeper

from ..conftest import _PREFIXES
from ..test_docs import parse
from .watched import MULTINODE

WATCHED = Path(__file__).with_name("watched.py")
REPOSITORY = WATCHED.parents[2]
LIMIT = 120
TORCH = [pytest.mark.torch, pytest.mark.xdist_group("multinode")]


@dataclass(frozen=True)
class Job:
    """What the nodes of a job said, and what its ranks reported."""

    codes: tuple[int, ...]
    errors: str
    ranks: tuple[dict[str, Any], ...]

    def of_all(self, fact: str) -> set[Any]:
        return {rank[fact] for rank in self.ranks}


@dataclass(frozen=True)
class Saved:
    """A store with the snapshot `drafter`, saved by a first start, which was cold."""

    bin: Path
    store: Path
    first: Job


def base_environment(tools: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith((*_PREFIXES, "WARM_START_"))}
    own = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "NNODES": "2",
        "NPROC_PER_NODE": "2",
        "CACHEKEEPER_NAME": "drafter",
    }
    return kept | own


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_nodes(commands: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]]) -> Job:
    """Run the nodes of a job at the same time, to their ends."""
    port = {"MASTER_PORT": free_port()}
    nodes = [
        subprocess.Popen(
            command,
            cwd=MULTINODE,
            env={**environment, **port},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for command, environment in zip(commands, environments, strict=True)
    ]
    try:
        said = [node.communicate(timeout=LIMIT) for node in nodes]
    finally:
        for node in nodes:
            if node.poll() is None:
                os.killpg(node.pid, 9)
    lines = [line for output, _ in said for line in output.splitlines() if line.startswith("{")]
    ranks = sorted(map(json.loads, lines), key=lambda rank: rank["rank"])
    job = Job(tuple(node.returncode for node in nodes), "".join(errors for _, errors in said), tuple(ranks))
    print(job.codes, *job.ranks, job.errors[-3000:], sep="\n")
    return job


def torchrun(tools: Path, work: Path, nodes: Sequence[Mapping[str, str]], *arguments: str) -> Job:
    """`torchrun.sh` on every node, watched; a node's directory is `work/<number>`, the log `work/opened`."""
    command = ["bash", str(MULTINODE / "torchrun.sh"), str(WATCHED), str(work / "opened"), *arguments]
    environments = [
        {**base_environment(tools), "NODE_RANK": str(number), "WARM_START_DIR": str(work / str(number)), **node}
        for number, node in enumerate(nodes)
    ]
    return run_nodes([command] * len(nodes), environments)


def make_tools(directory: Path) -> Path:
    """The commands that the recipes call, as this very Python has them; the directory to put first on PATH."""
    directory.mkdir()
    for name, command in (
        ("python", ""),
        ("cachekeeper", "-m cachekeeper"),
        ("torchrun", "-m torch.distributed.run"),
    ):
        tool = directory / name
        tool.write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        tool.chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """The first start of all, by one rank: nothing to restore, and what it compiles is saved."""
    if not shutil.which("g++"):
        pytest.skip("no g++")
    work = tmp_path_factory.mktemp("multinode")
    tools, store = make_tools(work / "bin"), work / "store"
    alone = {"NNODES": "1", "NPROC_PER_NODE": "1", "CACHEKEEPER_STORE": str(store), "WARM_START_SAVE": "drafter"}
    return Saved(tools, store, torchrun(tools, work, [alone]))


@pytest.fixture
def other(saved: Saved, tmp_path: Path) -> str:
    """Another snapshot in the store, with the same entries: its id."""
    cachekeeper.restore("drafter", cache_dir=tmp_path / "again", store=saved.store, allow_mismatch=True)
    return make_other(saved, tmp_path / "again", "other")


def make_other(saved: Saved, cache: Path, name: str) -> str:
    command = ["cachekeeper", "snapshot", name, "--quiet", "--wait", "0", "--cache-dir", str(cache), "-m", "other"]
    environment = {**base_environment(saved.bin), "CACHEKEEPER_STORE": str(saved.store)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def identifier(saved: Saved, name: str = "drafter") -> str:
    return cachekeeper.show(name, store=saved.store).snapshot.id


class TestTogether:
    pytestmark = TORCH

    def test_the_first_start_is_cold_and_saved(self, saved: Saved) -> None:
        assert saved.first.codes == (0,), saved.first.errors
        [rank] = saved.first.ranks
        assert rank["snapshot"] == "" and rank["misses"] > 0 and rank["new_files"] > 0
        assert f"drafter: {identifier(saved)}" in saved.first.errors

    def test_slurm_both_nodes_restored_so_every_rank_is_warm(self, saved: Saved, tmp_path: Path, other: str) -> None:
        """The name moves between the batch script and the nodes, which does not split them."""
        before = identifier(saved)
        opened = tmp_path / "opened"
        tools = make_slurm(
            saved.bin, tmp_path, move=f"cachekeeper snapshot drafter --cache-dir {tmp_path}/again -q --wait 0"
        )
        script = tmp_path / "slurm.sbatch"
        text = (MULTINODE / "slurm.sbatch").read_text()
        script.write_text(text.replace(" train.py ", f" {WATCHED} {opened} "))
        own = {"CACHEKEEPER_STORE": str(saved.store), "SLURM_SUBMIT_DIR": str(MULTINODE), "SLURM_JOB_ID": "7"}
        slurm = {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "node[0-1]"}
        job = run_nodes([["bash", str(script)]], [{**base_environment(tools), **own, **slurm}])
        assert job.codes == (0,), job.errors
        assert identifier(saved) != before
        assert [rank["rank"] for rank in job.ranks] == [0, 1, 2, 3]
        assert job.of_all("snapshot") == {before}
        assert job.of_all("misses") == job.of_all("new_files") == {0}
        assert all(rank["hits"] > 0 for rank in job.ranks)
        assert len(job.of_all("cache")) == 2 and all(path.endswith("/restored") for path in job.of_all("cache"))
        assert job.errors.count("warm_start: restored") == 2
        assert not any(Path(path).exists() for path in job.of_all("cache"))
        # The same watch that sees nothing in a cold start sees the libraries here.
        assert ".so" in opened.read_text()

    def test_a_damaged_store_on_one_node_makes_every_rank_cold(self, saved: Saved, tmp_path: Path) -> None:
        damaged = shutil.copytree(saved.store, tmp_path / "damaged")
        for pack in (damaged / "packs").rglob("*"):
            if pack.is_file():
                flip_bytes(pack)
        stores = [{"CACHEKEEPER_STORE": str(store)} for store in (saved.store, damaged)]
        job = torchrun(saved.bin, tmp_path, stores)
        assert job.codes == (0, 0), job.errors
        check_cold(job, tmp_path)
        assert all(rank["hits"] + rank["misses"] > 0 and rank["loss"] > 0 for rank in job.ranks)
        assert all(list(Path(cache).glob("fxgraph/*/*")) for cache in job.of_all("cache"))
        assert (tmp_path / "opened").read_text() == ""
        written = (tmp_path / "0" / "restored.json").stat().st_mtime
        restored = [path for path in (tmp_path / "0" / "restored").rglob("*") if path.is_file()]
        assert any(path.suffix == ".so" for path in restored)
        assert all(path.stat().st_ctime <= written for path in restored)

    def test_different_snapshots_make_every_rank_cold(self, saved: Saved, tmp_path: Path, other: str) -> None:
        store = str(saved.store)
        ids = [identifier(saved), other]
        nodes = [{"CACHEKEEPER_STORE": store, "CACHEKEEPER_NAME": name, "NPROC_PER_NODE": "1"} for name in ids]
        job = torchrun(saved.bin, tmp_path, nodes, "--steps", "0")
        assert job.codes == (0, 0), job.errors
        check_cold(job, tmp_path, per_node=1)
        for number, expected in enumerate(ids):
            assert json.loads((tmp_path / str(number) / "restored.json").read_text())["id"] == expected
            assert expected[:12] in job.errors

    def test_a_rank_killed_in_the_agreement_ends_the_job_before_any_step(self, saved: Saved, tmp_path: Path) -> None:
        node = {"CACHEKEEPER_STORE": str(saved.store), "DIES": "3"}
        job = torchrun(saved.bin, tmp_path, [node, node])
        assert job.codes[0] != 0 and job.codes[1] != 0
        assert job.ranks == ()
        assert "warm_start: warm" not in job.errors and "warm_start: cold" not in job.errors
        assert job.errors.count("warm_start: restored") == 2
        assert list(tmp_path.glob("*/cold-*")) == []
        assert (tmp_path / "opened").read_text() == ""

    def test_the_commands_of_the_containers(self, saved: Saved, tmp_path: Path) -> None:
        pod = documents()[1]["spec"]["template"]["spec"]
        [init], [main] = pod["initContainers"], pod["containers"]
        assert init["env"] == main["env"] and init["resources"] == main["resources"]
        set_here = {item["name"]: item["value"] for item in main["env"]}
        pods = [
            {
                **base_environment(saved.bin),
                **set_here,
                "CACHEKEEPER_STORE": str(saved.store),
                "WARM_START_DIR": str(tmp_path / str(index)),
                "NPROC_PER_NODE": "1",
                "JOB_COMPLETION_INDEX": str(index),
            }
            for index in range(2)
        ]
        for environment in pods:
            subprocess.run(init["command"], cwd=MULTINODE, env=environment, check=True)
        command = [word.replace("--steps 3", "--steps 0") for word in main["command"]]
        job = run_nodes([command] * 2, pods)
        assert job.codes == (0, 0), job.errors
        assert job.of_all("snapshot") == {identifier(saved)}


def make_slurm(tools: Path, work: Path, move: str) -> Path:
    """Stand-ins for srun and scontrol. srun runs its command once for each of two nodes, after the command `move`."""
    directory = shutil.copytree(tools, work / "slurm")
    (directory / "scontrol").write_text('#!/bin/sh\n[ "$1 $2" = "show hostnames" ] && echo 127.0.0.1\n')
    (directory / "srun").write_text(
        f"#!/bin/bash\n{move} >&2 || exit 99\n"
        'while [ "${1#--}" != "$1" ]; do shift; done\npids=()\n'
        'for node in 0 1; do SLURM_NODEID=$node "$@" & pids+=($!); done\n'
        'for pid in "${pids[@]}"; do wait "$pid" || exit 1; done\n'
    )
    for name in ("srun", "scontrol"):
        (directory / name).chmod(0o755)
    return directory


def flip_bytes(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for place in range(100, len(data), 4096):
        data[place] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def check_cold(job: Job, work: Path, per_node: int = 2) -> None:
    """All ranks, in two new directories that were not restored into."""
    assert [rank["rank"] for rank in job.ranks] == list(range(2 * per_node))
    assert job.of_all("snapshot") == {""}
    for rank in job.ranks:
        cache = Path(rank["cache"])
        assert cache.name.startswith("cold-") and cache.parent == work / str(rank["rank"] // per_node)
    assert len(job.of_all("cache")) == 2
    assert "warm_start: cold on every node" in job.errors


# Without torch


@pytest.fixture
def warm_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("warm_start", MULTINODE / "warm_start.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "warm_start", module)
    spec.loader.exec_module(module)
    monkeypatch.setenv("WARM_START_DIR", str(tmp_path / "node"))
    monkeypatch.setenv("CACHEKEEPER_STORE", str(tmp_path / "store"))
    return module


@pytest.mark.parametrize(
    ("ids", "expected"),
    [(["a"] * 8, "a"), (["a"] * 7 + [""], ""), (["a", "b"], ""), (["", ""], ""), (["", "a"], ""), ([], "")],
)
def test_the_rule(warm_start: ModuleType, ids: list[str], expected: str) -> None:
    assert warm_start.agreed(ids) == expected


def test_a_restore_that_takes_too_long_is_nothing(warm_start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARM_START_TIMEOUT", "0.01")
    restored = warm_start.restore_once()
    assert (restored.id, restored.why) == ("", "the restore did not end in 0.01 s")
    assert warm_start._recorded() == restored


def test_the_reason_is_recorded(warm_start: ModuleType) -> None:
    assert "no snapshots" in warm_start.restore_once().why
    assert "no snapshots" in warm_start._recorded().why


def test_an_earlier_record_does_not_speak_for_a_killed_restore(
    warm_start: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(target: Path) -> None:
        raise KeyboardInterrupt

    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "restored.json").write_text('{"id": "a", "environment": {}, "why": ""}')
    assert warm_start._recorded().id == "a"
    monkeypatch.setattr(warm_start, "_restore", killed)
    with pytest.raises(KeyboardInterrupt):
        warm_start.restore_once()
    assert warm_start._recorded().id == ""


def test_agreeing_after_something_was_compiled_is_refused(
    warm_start: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_start._refuse_too_late()
    compiled = SimpleNamespace(counters={"frames": {"total": 1}})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", compiled)
    with pytest.raises(RuntimeError, match="before the first compiled call"):
        warm_start._refuse_too_late()


def test_strict_fails_on_every_rank_and_says_why(
    warm_start: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gather(said: list[Any], mine: Any, group: object) -> None:
        said[:] = [mine, ("b" * 64, "", "node-b", "token")]

    for rank in range(2):
        distributed = SimpleNamespace(
            new_group=lambda **_: None,
            get_world_size=lambda: 2,
            get_rank=lambda rank=rank: rank,
            all_gather_object=gather,
        )
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
        monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
        monkeypatch.setenv("WARM_START_STRICT", "1")
        with pytest.raises(RuntimeError, match=r"no record of a restore(?s:.*)node-b: bbbbbbbbbbbb"):
            warm_start.agree()
        assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    assert capsys.readouterr().err.count("cold on every node") == 1


# The files


def documents() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((MULTINODE / "kubernetes.yaml").read_text()))


def test_the_manifest_is_one_job_whose_pods_find_each_other() -> None:
    service, job = documents()
    pod = job["spec"]["template"]["spec"]
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    assert f"{job['metadata']['name']}-0.{pod['subdomain']}" in pod["containers"][0]["command"][2]
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == {
        item["name"] for item in pod["volumes"]
    }


@pytest.mark.parametrize("name", ["torchrun.sh", "slurm.sbatch"])
def test_the_scripts_are_bash(name: str) -> None:
    subprocess.run(["bash", "-n", str(MULTINODE / name)], check=True)


def commands() -> list[str]:
    """The command lines of cachekeeper in the recipes; those of warm_start.py are run above."""
    texts = [path.read_text() for path in sorted(MULTINODE.iterdir()) if path.is_file()]
    found = [line for text in texts for line in re.findall(r"(?:`|\$\()(cachekeeper\s[a-z][^`)]*)", text)]
    return list(dict.fromkeys(found))


def test_there_are_commands() -> None:
    assert {line.split()[1] for line in commands()} >= {"restore", "show"}


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_recipes_parses(line: str) -> None:
    parse(line)


def test_every_setting_is_described(warm_start: ModuleType) -> None:
    texts = [path.read_text() for path in MULTINODE.iterdir() if path.is_file()]
    assert settings_in("".join(texts)) == settings_in(warm_start.__doc__ or "")


def settings_in(text: str) -> set[str]:
    return set(re.findall(r"WARM_START_[A-Z]+", text))
