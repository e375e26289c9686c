"""The commands on a bucket, as a person runs them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.cli import main
from cachekeeper.errors import ReadOnly, UsageError
from cachekeeper.stores import NOT_EXCLUSIVE, PROBES, open_store
from cachekeeper.testing import make_cache
from cachekeeper.verbs.doctor import DoctorResult, doctor
from tests.verbs.conftest import settle, unplaced

from . import servers
from .proxy import Proxy, answer_error, reset_at_once, stall
from .servers import Server

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make_cache(tmp_path / "cache")


@pytest.fixture
def url(credentials: None, bucket: str) -> str:
    return f"s3://{bucket}/team/caches"


def test_the_whole_job(url: str, cache: Path, tmp_path: Path, capsys: Captured):
    where = ["--store", url]
    assert main(["ls", *where]) == 5
    assert "no snapshots in" in capsys.readouterr().err
    assert main(["snapshot", "drafter", "--cache-dir", str(cache), "--wait", "0", *where]) == 0
    assert main(["ls", *where]) == 0 and "drafter" in capsys.readouterr().out
    assert main(["show", "drafter", *where]) == 0
    assert main(["restore", "drafter", "--verify", "--cache-dir", str(tmp_path / "target"), *where]) == 0
    assert main(["verify", "--all", *where]) == 0
    assert main(["verify", "drafter", "--live", str(tmp_path / "target"), *where]) == 0
    assert "every SHA-256 matches" in capsys.readouterr().out
    found, right = unplaced(tmp_path / "target"), unplaced(cache)
    assert {path: data for path, data in found.items() if path in right and ".lock" not in path} == {
        path: data for path, data in right.items() if path in found
    }


def test_an_unchanged_cache_sends_no_pack(url: str, cache: Path):
    settle(cache)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0)
    again = cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0)
    assert again.stored == again.new_files == 0
    [newest, older] = cachekeeper.ls(store=url).rows
    assert newest.names == ("drafter",) and older.names == ("drafter@{1}",)


def test_an_index_is_read_once_a_machine(
    url: str, cache: Path, proxy: Proxy, own_environment: Path, monkeypatch: pytest.MonkeyPatch
):
    for seed in range(3):
        cachekeeper.snapshot("drafter", cache_dir=make_cache(cache, seed=seed), store=url, wait=0)
    monkeypatch.setenv("CACHEKEEPER_S3_ENDPOINT", proxy.endpoint)

    def asked() -> int:
        before = len(proxy.said("get", "*packs/*"))
        assert cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0).new_files == 0
        return len(proxy.said("get", "*packs/*")) - before

    assert asked() == 1, "of the pack that the last of the three wrote"
    assert asked() == 0
    for kept in (own_environment / "cache/cachekeeper/indexes").iterdir():
        kept.write_bytes(kept.read_bytes()[:-1])
    assert asked() == 3, "what is kept is damaged"
    assert asked() == 0


def test_damage_in_a_bucket_is_found(url: str, cache: Path, server: Server, bucket: str, capsys: Captured):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0)
    [(key, data)] = [item for item in servers.contents(server, bucket).items() if "/packs/" in item[0]]
    servers.kept_client(server).put_object(
        Bucket=bucket, Key=key, Body=data[:500] + bytes([data[500] ^ 1]) + data[501:]
    )
    assert main(["verify", "drafter", "--store", url]) == 3
    out = capsys.readouterr().out
    assert f"pack {key.rpartition('/')[2][:8]}: " in out and "of 1 snapshot" in out


def test_a_foreign_object_among_the_packs_is_no_damage(url: str, cache: Path, server: Server, bucket: str):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0)
    servers.kept_client(server).put_object(Bucket=bucket, Key="team/caches/packs/readme.txt", Body=b"hello")
    assert cachekeeper.verify(every=True, store=url).ok
    assert cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0).new_files == 0


def test_an_interrupted_restore_does_not_let_the_job_start(
    url: str, cache: Path, tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0)
    monkeypatch.setenv("CACHEKEEPER_S3_ENDPOINT", proxy.endpoint)
    command = f"{sys.executable} -m cachekeeper restore drafter --cache-dir {tmp_path}/target --export --store {url}"
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        proxy.fault(stall(5), operation="get", key="*format.json")
        script = f'set -e; eval "$(timeout -s {number.name[3:]} 2 {command})"; echo STARTED'
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (code, "")
        assert "nothing is half done" in done.stderr


def test_another_thing_in_the_bucket_is_refused(url: str, cache: Path, server: Server, bucket: str):
    servers.kept_client(server).put_object(Bucket=bucket, Key="team/caches/photo.jpg", Body=b"holiday")
    with pytest.raises(UsageError, match="not a cachekeeper store"):
        cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0)
    keys = [key for key, *_ in open_store(url).list("")]
    assert [key for key in keys if not key.startswith(PROBES)] == ["photo.jpg"]


def test_read_only_refuses_to_write_whatever_the_credentials_allow(
    url: str, cache: Path, proxy: Proxy, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0)
    monkeypatch.setenv("CACHEKEEPER_S3_ENDPOINT", proxy.endpoint)
    monkeypatch.setenv("CACHEKEEPER_READ_ONLY", "1")
    assert main(["snapshot", "drafter", "--cache-dir", str(cache), "--store", url]) == 6
    assert "error[read-only]" in capsys.readouterr().err
    with pytest.raises(ReadOnly):
        cachekeeper.copy(url, url + "-copy")
    with pytest.raises(ReadOnly):
        cachekeeper.pin("drafter", store=url)
    assert main(["restore", "drafter", "--cache-dir", str(tmp_path / "target"), "--store", url]) == 0
    assert main(["doctor", "--store", url, "--cache-dir", str(cache)]) == 0
    assert {request.method for request in proxy.requests} <= {"GET", "HEAD"}


def test_a_local_cache_by_flag(url: str, cache: Path, tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch):
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0)
    monkeypatch.setenv("CACHEKEEPER_S3_ENDPOINT", proxy.endpoint)
    where = ["--store", url, "--local-cache", str(tmp_path / "near")]
    assert main(["restore", "drafter", "--cache-dir", str(tmp_path / "one"), *where]) == 0
    asked = len(proxy.requests)
    assert main(["restore", saved.snapshot.id, "--cache-dir", str(tmp_path / "two"), *where]) == 0
    assert len(proxy.requests) == asked, "by id, nothing is asked"
    assert main(["restore", "drafter", "--cache-dir", str(tmp_path / "three"), *where]) == 0
    assert [(request.operation, request.key[-8:]) for request in proxy.requests[asked:]] == [
        ("list", ""),
        ("head", "00000002"),
        ("get", "00000001"),
    ]


def test_a_local_cache_when_the_bucket_is_away(
    url: str, cache: Path, tmp_path: Path, capsys: Captured, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0)
    monkeypatch.setenv("CACHEKEEPER_S3_ENDPOINT", proxy.endpoint)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    where = ["--store", url, "--local-cache", str(tmp_path / "near")]
    assert main(["restore", "drafter", "--cache-dir", str(tmp_path / "one"), *where]) == 0
    proxy.fault(reset_at_once(), times=None)
    assert main(["restore", "drafter", "--cache-dir", str(tmp_path / "two"), *where]) == 0
    assert main(["ls", *where]) == 0 and main(["show", "drafter", *where]) == 0
    assert capsys.readouterr().out.count("cannot be reached: this is what this machine saw") == 3
    assert main(["restore", "drafter", "--cache-dir", str(tmp_path / "three"), "--store", url]) == 6
    assert main(["verify", "drafter", *where]) == 6, "it checks the store, not a copy"
    assert main(["doctor", "--cache-dir", str(cache), *where]) == 3, "so does this"


def test_verify_reads_the_bucket_and_not_the_copy_here(
    url: str, cache: Path, server: Server, bucket: str, tmp_path: Path
):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0)
    where = ["--store", url, "--local-cache", str(tmp_path / "near")]
    assert main(["restore", "drafter", "--cache-dir", str(tmp_path / "one"), *where]) == 0
    assert main(["verify", "drafter", *where]) == 0
    [key] = [key for key in servers.contents(server, bucket) if "/packs/" in key]
    servers.kept_client(server).delete_object(Bucket=bucket, Key=key)
    assert main(["restore", "drafter", "--cache-dir", str(tmp_path / "two"), *where]) == 0
    assert main(["verify", "drafter", *where]) == 3


# doctor


def found(result: DoctorResult, check: str) -> dict[str, str]:
    return {finding.level: finding.message for finding in result.findings if finding.check == check}


def test_doctor_on_a_good_bucket(url: str, cache: Path, server: Server, bucket: str):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=url, wait=0)
    before = servers.contents(server, bucket)
    result = doctor(cache_dir=cache, store=url)
    assert found(result, "store") == {"ok": f"{url} can be read"}
    assert "exactly one wins" in found(result, "writers")["ok"]
    assert servers.contents(server, bucket) == before


def test_doctor_and_snapshot_on_a_server_that_lies(
    lying_credentials: None, lying_server: Server, cache: Path, capsys: Captured
):
    url = f"s3://{servers.make_bucket(lying_server)}/p"
    assert main(["snapshot", "drafter", "--cache-dir", str(cache), "--wait", "0", "--store", url]) == 0
    assert NOT_EXCLUSIVE in capsys.readouterr().out
    assert cachekeeper.verify(every=True, store=url).ok
    assert found(doctor(cache_dir=cache, store=url), "writers") == {"warning": NOT_EXCLUSIVE}


def test_doctor_with_credentials_that_only_read(cache: Path, bucket: str, server: Server, read_only_credentials: None):
    result = doctor(cache_dir=cache, store=f"s3://{bucket}/p")
    assert "s3:PutObject" in found(result, "writers")["warning"]
    assert "restored, not saved" in found(result, "writers")["warning"]


def test_doctor_without_a_bucket(cache: Path, credentials: None):
    result = doctor(cache_dir=cache, store="s3://no-such-bucket-here/p")
    assert "no such bucket" in found(result, "store")["error"] and not result.ok
    assert found(result, "writers") == {}


def test_doctor_says_the_same_as_json(
    url: str, cache: Path, capsys: Captured, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CACHEKEEPER_S3_ENDPOINT", proxy.endpoint)
    proxy.fault(answer_error(403, "RequestTimeTooSkewed"), times=None)
    assert main(["doctor", "--json", "--store", url, "--cache-dir", str(cache)]) == 3
    document = json.loads(capsys.readouterr().out)
    [error] = [item for item in document["findings"] if item["level"] == "error"]
    assert "clock" in error["message"] and document["store"] == url


def test_a_comparison_is_the_same_as_on_a_disk(url: str, tmp_path: Path):
    pairs = Path(__file__).parents[1] / "golden/pairs"
    cachekeeper.copy(pairs, url, ["default", "warps"])
    found = cachekeeper.diff("default", "warps", store=url).difference
    assert found == cachekeeper.diff("default", "warps", store=pairs).difference
    page = tmp_path / "report.html"
    assert main(["report", "warps", "--html", str(page), "--store", url]) == 0
    assert "softcap" in page.read_text()
