"""The recipes of examples/watch: the unit as systemd reads it, the commands of both run for real."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

import cachekeeper
from cachekeeper.testing import make_cache
from cachekeeper.watching import watcher_of

from ..test_docs import parse
from ..watching.guarding import wait_for
from .test_multinode import REPOSITORY, base_environment, make_tools

WATCH = REPOSITORY / "examples" / "watch"
UNIT = WATCH / "cachekeeper-watch.service"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the recipes run in: a store with a snapshot, and where its cache belongs."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as the tools have it: caches of the CPU depend on it
    cache = make_cache(tmp_path / "filled", kernels=2, graphs=2)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=tmp_path / "store", wait=0)
    return {
        **base_environment(make_tools(tmp_path / "bin")),
        "CACHEKEEPER_STORE": str(tmp_path / "store"),
        "CACHEKEEPER_CACHE_DIR": str(tmp_path / "cache" / "inductor"),
        "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],
    }


@pytest.fixture
def live(environment: dict[str, str]) -> Path:
    path = Path(environment["CACHEKEEPER_CACHE_DIR"])
    cachekeeper.restore("drafter", cache_dir=path, store=environment["CACHEKEEPER_STORE"])
    return path


# systemd


def service() -> dict[str, list[str]]:
    """The [Service] section; a key may be there more than once."""
    section = UNIT.read_text().partition("[Service]\n")[2].partition("\n[")[0]
    found: dict[str, list[str]] = {}
    for line in section.splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze"):
        done = subprocess.run(["systemd-analyze", "verify", UNIT], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        wrong = tmp_path / "wrong.service"  # it would have been noticed
        wrong.write_text(UNIT.read_text().replace("Type=notify", "Type=notifi"))
        done = subprocess.run(["systemd-analyze", "verify", wrong], capture_output=True, text=True)
        assert "notifi" in done.stderr
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(UNIT)
    assert parsed.sections() == ["Unit", "Service", "Install"]


def test_the_exit_codes_that_it_names_are_those_of_the_command(environment: dict[str, str], live: Path) -> None:
    from cachekeeper.errors import Busy, EnvironmentMismatch, NotFound, StoreError, UsageError

    hopeless = {kind.exit_code for kind in (UsageError, EnvironmentMismatch, NotFound, Busy)}
    assert set(map(int, service()["RestartPreventExitStatus"][0].split())) == hopeless
    assert StoreError.exit_code not in hopeless and service()["SuccessExitStatus"] == ["143"]


def test_its_command_puts_back_what_is_gone(environment: dict[str, str], live: Path) -> None:
    [command] = service()["ExecStart"]
    shutil.rmtree(live / "fxgraph")
    done = subprocess.run([*shlex.split(command), "--once"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and ": put back 2 entries, " in done.stdout, done
    assert len(list(live.glob("fxgraph/*/f*"))) == 2


def test_its_command_says_when_it_has_begun(environment: dict[str, str], live: Path, tmp_path: Path) -> None:
    assert service()["Type"] == ["notify"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(60)
        command = shlex.split(service()["ExecStart"][0])
        own = {**environment, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            assert channel.recv(4096).startswith(b"READY=1\n")
            assert watcher_of(live) == process.pid  # systemd takes the word of the main process alone
            process.terminate()
        assert process.returncode == 143


# Kubernetes


def pod() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    document = yaml.safe_load((WATCH / "sidecar.yaml").read_text())
    assert isinstance(document, dict)
    return document


def test_the_containers_share_the_cache_and_the_user() -> None:
    spec = pod()["spec"]
    restore, watch = spec["initContainers"]
    [job] = spec["containers"]
    assert watch["restartPolicy"] == "Always" and "restartPolicy" not in restore
    assert restore["env"] == watch["env"] == job["env"] and restore["envFrom"] == watch["envFrom"]
    assert restore["volumeMounts"] == watch["volumeMounts"] == job["volumeMounts"]
    assert {mount["name"] for mount in job["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] == 1000
    assert not any("securityContext" in container for container in (restore, watch, job))
    assert "nvidia.com/gpu" not in watch["resources"]["limits"]
    values = {item["name"]: item["value"] for item in job["env"]}
    assert not values["XDG_CACHE_HOME"].startswith(values["CACHEKEEPER_CACHE_DIR"])


def test_the_commands_of_the_containers(environment: dict[str, str], tmp_path: Path) -> None:
    spec = pod()["spec"]
    restore, watch = spec["initContainers"]
    [job] = spec["containers"]
    set_here = {item["name"]: item["value"] for item in job["env"]}
    own = {**set_here, **environment, "XDG_CACHE_HOME": str(tmp_path / "cache" / "home")}
    live = Path(own["CACHEKEEPER_CACHE_DIR"])
    live.parent.mkdir()
    (tmp_path / "serve.py").write_text("import os; print(os.environ['TRITON_CACHE_DIR'])\n")
    cachekeeper.restore("drafter", cache_dir=tmp_path / "x", store=own["CACHEKEEPER_STORE"])
    subprocess.run(restore["command"], env=own, check=True)
    with subprocess.Popen(watch["command"], env=own, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and '"event": "watching"' in process.stdout.readline()
        shutil.rmtree(live)
        wait_for(lambda: len(list(live.glob("fxgraph/*/f*"))) == 2)
        done = subprocess.run(job["command"], env=own, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, f"{live}/triton/0\n"), done
        process.terminate()
        process.stdout.read()


def commands() -> list[str]:
    """The command lines of cachekeeper in the recipes."""
    texts = {path.name: path.read_text() for path in sorted(WATCH.iterdir())}
    found = re.findall(r"`(cachekeeper [a-z][^`]*)`", "".join(texts.values()))
    found += re.findall(r"^(cachekeeper [a-z][^#\n]*)", texts["README.md"], re.MULTILINE)
    found += re.findall(r"^ *(cachekeeper [a-z][^>\n]*)", texts["sidecar.yaml"], re.MULTILINE)
    found += [line.replace(",", "") for line in re.findall(r"\[(cachekeeper, [^\]]*)\]", texts["sidecar.yaml"])]
    return list(dict.fromkeys(line.strip() for line in found))


def test_there_are_commands() -> None:
    assert {line.split()[1] for line in commands()} >= {"restore", "watch", "run", "clear", "move"}
    assert "cachekeeper watch --json" in commands()


@pytest.mark.parametrize("line", [line for line in commands() if line.split()[1] not in ("clear", "move")])
def test_every_command_of_the_recipes_parses(line: str) -> None:
    parse(line)
