"""A watch on real caches, in a process of its own: what vanishes comes back, and nothing else is touched."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import Busy, EnvironmentMismatch, NotFound, Unreachable, UsageError
from cachekeeper.stores import LocalStore
from cachekeeper.testing import make_cache, make_triton_entry
from cachekeeper.verbs.restore import restore
from cachekeeper.verbs.snapshot import snapshot
from cachekeeper.verbs.watch import watch
from cachekeeper.watching import Event, watcher_of
from tests import samples
from tests.faults.children import dies_at, finish, killed_after
from tests.faults.scene import check_live
from tests.faults.scene import tree as normal_tree
from tests.verbs.conftest import Machine, kernels, unplaced
from tests.watching.guarding import Guard, is_whole, wait_for


@pytest.fixture
def machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr("cachekeeper.verbs.watch.fingerprint", lambda **_: machine.fingerprint)
    return machine


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is judged after a fraction of a second, so that tests are quick."""
    monkeypatch.setattr("cachekeeper.watching.looking.YOUNG_SECONDS", 0.3)


@pytest.fixture
def saved(machine: Machine, store: Path, cache: Path) -> str:
    return snapshot("drafter", cache_dir=cache, store=store).snapshot.id


@pytest.fixture
def live(saved: str, store: Path, tmp_path: Path) -> Path:
    restore("drafter", cache_dir=tmp_path / "live", store=store)
    return tmp_path / "live"


@pytest.fixture
def guard(live: Path, store: Path) -> Iterator[Guard]:
    with Guard(cache_dir=live, store=store) as started:
        yield started


def becomes_whole(live: Path, cache: Path) -> None:
    wait_for(lambda: is_whole(live, cache), "the cache did not become whole")


# Noticed and put back


def test_the_whole_directory_is_removed(guard: Guard, live: Path, cache: Path, saved: str):
    shutil.rmtree(live)
    becomes_whole(live, cache)
    assert stat.S_IMODE(live.stat().st_mode) == 0o700
    guard.wait_for("put-back")
    assert json.loads((live / ".cachekeeper/restored.json").read_text())["snapshot"] == saved
    shutil.rmtree(live / "triton")  # it is watched anew
    becomes_whole(live, cache)
    guard.wait_for("gone", "gone 3 entries (triton/0/")


def test_its_contents_are_removed(guard: Guard, live: Path, cache: Path):
    subprocess.run(["sh", "-c", f"rm -rf '{live}'/* '{live}'/.cachekeeper"], check=True)
    becomes_whole(live, cache)


def test_the_directory_is_moved_away(guard: Guard, live: Path, cache: Path):
    live.rename(live.with_name("away"))
    before = unplaced(live.with_name("away"))
    becomes_whole(live, cache)
    shutil.rmtree(live)
    becomes_whole(live, cache)
    assert unplaced(live.with_name("away")) == before


def test_torch_has_made_the_directory_anew(guard: Guard, live: Path, cache: Path):
    shutil.rmtree(live)
    own = make_cache(live, seed=7, kernels=1, graphs=1)
    mine = {path: path.stat().st_ino for path in own.rglob("*") if path.is_file()}
    becomes_whole(live, cache)
    assert {path: path.stat().st_ino for path in mine} == mine


def test_single_files_of_every_kind(guard: Guard, live: Path, cache: Path):
    for pattern in ("triton/0/*/*.cubin", "fxgraph/*/f*/[!.]*", "aotautograd/*/*", "??/*.so", "??/*.best_config"):
        min(live.glob(pattern)).unlink()
    becomes_whole(live, cache)
    assert "gone: gone 5 entries (aotautograd/" in guard.told("gone")[0]


def test_damaged_files_are_put_back_and_the_evidence_is_kept(guard: Guard, live: Path, cache: Path, saved: str):
    min(live.glob("triton/0/*/*.cubin")).write_bytes(b"")
    min(live.glob("??/*.so")).write_bytes(b"\x7fELF and then nothing")
    group = max(live.glob("triton/0/*/__grp__*"))
    group.write_bytes(group.read_bytes()[:-9])
    becomes_whole(live, cache)
    [evidence] = live.glob(".cachekeeper/quarantine/*/evidence.json")
    told = json.loads(evidence.read_text())
    assert told["snapshot"] == saved and {item["kind"] for item in told["files"]} == {"triton", "native"}
    assert [path.read_bytes() for path in evidence.parent.rglob("*.so")] == [b"\x7fELF and then nothing"]
    assert not list(live.glob(".cachekeeper/*stage*"))


def test_what_torch_writes_is_left_alone(guard: Guard, live: Path, cache: Path):
    own = min(live.glob("??/*.py"))
    own.write_bytes(b"# AOT ID: ['0_inference']\nx = 1234\n")
    extra = make_triton_entry(live / "triton" / "0", seed=5)
    (extra / "broken.cubin").write_bytes(b"")
    scratch = live / "ab" / ".1.2.tmp"
    scratch.parent.mkdir(exist_ok=True)
    scratch.write_bytes(b"")
    guard.wait_for("left-alone", "sound, with other bytes")
    min(live.glob("??/*.so")).unlink()
    guard.wait_for("put-back")
    assert own.read_bytes().endswith(b"x = 1234\n") and scratch.exists()
    assert (extra / "broken.cubin").read_bytes() == b"" and not (live / ".cachekeeper" / "aside").exists()


def test_a_damaged_file_waits_while_torch_compiles(guard: Guard, live: Path, cache: Path):
    (live / "locks").mkdir()
    with open(live / "locks" / "cx.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        library = min(live.glob("??/*.so"))
        library.write_bytes(b"")
        min(live.glob("??/*.py")).unlink()
        guard.wait_for("put-back")
        time.sleep(1)  # it would have been judged by now
        assert library.read_bytes() == b"" and not guard.told("damaged")
    becomes_whole(live, cache)


def test_it_polls_where_it_is_told_to(live: Path, store: Path, cache: Path):
    with Guard(cache_dir=live, store=store, poll=True, interval=0.1) as guard:
        assert guard.told("watching", "polling: as asked")
        shutil.rmtree(live)
        becomes_whole(live, cache)


def test_on_a_network_filesystem_it_polls(live: Path, store: Path, monkeypatch: pytest.MonkeyPatch):
    from cachekeeper.verbs.doctor.place import Mount

    monkeypatch.setattr("cachekeeper.verbs.watch.mount_of", lambda path: Mount("/", "nfs4", "server:/x"))
    with Guard(cache_dir=live, store=store) as guard:
        assert guard.told("watching", "polling: it is on nfs4")


def test_what_the_kernel_does_not_tell_is_found_by_the_slow_look(live: Path, store: Path, cache: Path):
    """truncate(2) by path, without an open file."""
    with Guard(cache_dir=live, store=store, interval=0.2):
        os.truncate(min(live.glob("??/*.so")), 0)
        becomes_whole(live, cache)


def test_every_kernel_is_in_one_directory_and_stays_there(machine: Machine, store: Path, tmp_path: Path):
    cache = make_cache(tmp_path / "two", devices=2, graphs=1)
    snapshot("two", cache_dir=cache, store=store, wait=0)
    restored = restore("two", cache_dir=tmp_path / "live", store=store)
    assert restored.environment
    directory = Path(restored.environment["TRITON_CACHE_DIR"])
    assert len(list(directory.iterdir())) == 8
    with Guard(cache_dir=tmp_path / "live", store=store):
        shutil.rmtree(directory.parent)
        wait_for(lambda: directory.exists() and len(list(directory.iterdir())) == 8)


def test_many_watches_at_once_are_one(guard: Guard, live: Path, store: Path):
    assert watcher_of(live) == guard.pid
    with pytest.raises(Busy) as caught:
        watch(cache_dir=live, store=store)
    assert caught.value.exit_code == 7 and str(guard.pid) in caught.value.facts[0]


# A cleaner

SWEEP = (
    "while find '{0}' -type f -not -path '*/.cachekeeper/*' -mmin +1 -print -delete | grep . > /dev/null; do :; done"
)
ONE_BY_ONE = """
import os, sys, time
from pathlib import Path
for path in sorted(Path(sys.argv[1]).rglob("*")):
    if path.is_file() and ".cachekeeper" not in path.parts and time.time() - path.stat().st_mtime > 60:
        path.unlink()
        time.sleep(0.01)
"""


@pytest.mark.parametrize("how", ["find", "python"])
def test_a_cleaner_by_age_while_a_job_reads(guard: Guard, live: Path, cache: Path, how: str):
    """Every file is old, and goes, one after the other; whoever opens a file finds it right or not at all."""
    for path in live.rglob("*"):
        if ".cachekeeper" not in path.parts:
            os.utime(path, (0, 0))
    right = unplaced(cache)
    wrong: list[str] = []
    reading = threading.Event()

    def read() -> None:
        here = str(live).encode()
        while not reading.is_set():
            for path, data in right.items():
                try:
                    found = (live / path).read_bytes().replace(here, b"@")
                except (FileNotFoundError, NotADirectoryError):
                    continue
                if found != data:
                    wrong.append(path)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        command = ["sh", "-c", SWEEP.format(live)] if how == "find" else [sys.executable, "-c", ONE_BY_ONE, str(live)]
        subprocess.run(command, check=True)
        becomes_whole(live, cache)
    finally:
        reading.set()
        reader.join()
    assert wrong == [] and guard.told("gone")
    assert min(path.stat().st_mtime for path in live.glob("fxgraph/*/f*/[!.]*")) > 1000  # they did go


def test_something_that_keeps_deleting_is_told_of_and_answered_less_often(guard: Guard, live: Path):
    library = min(live.glob("??/*.so"))
    with open(min(live.glob("??/*.py"))):  # this very process has a file open there
        for number in range(5):
            library.unlink()
            guard.wait_for("put-back", times=number + 1)
        guard.wait_for("restless", "something keeps deleting or damaging 1 entry, put back 5 times", f"{os.getpid()} (")
    library.unlink()
    other = max(live.glob("??/*.so"))
    other.unlink()
    wait_for(other.exists)
    assert not library.exists()


# Trouble


def test_a_store_that_is_gone_and_comes_back(guard: Guard, live: Path, store: Path, cache: Path):
    store.rename(store.with_name("away"))
    shutil.rmtree(live)
    guard.wait_for("trouble", "no snapshots in", times=2)
    store.with_name("away").rename(store)
    becomes_whole(live, cache)
    assert guard.alive()


def test_a_store_that_cannot_be_reached(live: Path, store: Path, cache: Path, tmp_path: Path):
    class Far(LocalStore):
        def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
            if (tmp_path / "down").exists():
                raise Unreachable("no answer from s3.example")
            return super().read(key, start, length)

    with Guard(cache_dir=live, store=Far(store)) as guard:
        (tmp_path / "down").touch()
        shutil.rmtree(live)
        guard.wait_for("trouble", "no answer from s3.example")
        assert not is_whole(live, cache)
        (tmp_path / "down").unlink()
        becomes_whole(live, cache)
        guard.wait_for("note", "it works again")


def test_what_is_damaged_here_and_there_goes_aside_so_that_torch_builds_it_again(live: Path, store: Path):
    for pack in store.glob("packs/*"):
        pack.unlink()
    library, kernel = min(live.glob("??/*.so")), kernels(live)[0]
    library.write_bytes(b"")
    min(kernel.glob("*.cubin")).write_bytes(b"")
    others = {path for path in normal_tree(live) if kernel.name not in path} - {str(library.relative_to(live))}
    result = watch(cache_dir=live, store=store, once=True)
    assert not result.ok and len(result.lost) == 2
    assert not library.exists() and not kernel.exists() and normal_tree(live).keys() == others
    assert len(list(live.glob(f".cachekeeper/quarantine/*/triton/0/{kernel.name}/*"))) == 7


def test_what_is_damaged_in_the_store_is_lost_and_the_rest_is_not(live: Path, store: Path, cache: Path):
    for size in (60, 3000):  # frames of their own, so that one of them is damaged and the others are not
        make_cache(cache, seed=size, kernels=1, graphs=1)
        snapshot("drafter", cache_dir=cache, store=store, wait=0)
    packs = sorted(store.glob("packs/*"))
    packs[0].chmod(0o644)
    packs[0].write_bytes(b"")
    shutil.rmtree(live)
    events: list[Event] = []
    result = watch("drafter", cache_dir=live, store=store, once=True, tell=events.append)
    assert not result.ok and result.lost and result.entries
    assert set(unplaced(live)) < set(unplaced(cache))
    [trouble] = [event for event in events if event.event == "trouble"]
    assert trouble.code == "damaged-store" and trouble.entries == result.lost
    assert events[-1].text.endswith(f"; NOT whole: {len(result.lost)} entries could not be put back")


def test_a_disk_that_refuses(live: Path, store: Path, cache: Path):
    """Something that is no directory is in the place of the cache directory."""
    with Guard(cache_dir=live, store=store) as guard:
        shutil.rmtree(live)
        live.write_text("in the way")
        guard.wait_for("trouble", "cannot put back")
        live.unlink()
        becomes_whole(live, cache)


def test_another_cachekeeper_at_work_is_waited_for(guard: Guard, live: Path, cache: Path):
    from cachekeeper.disk import locked

    with locked(live):
        min(live.glob("??/*.so")).unlink()
        guard.wait_for("gone")
        time.sleep(1.2)
        assert not guard.told("put-back") and not guard.told("trouble")
    becomes_whole(live, cache)


# kill -9


def once(live: Path, store: Path) -> None:
    watch(cache_dir=live, store=store, once=True)


@pytest.mark.parametrize("part", range(3))
def test_killed_at_every_step_the_cache_is_as_it_was_or_better(
    live: Path, store: Path, tmp_path: Path, part: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cachekeeper.watching.looking._young", lambda stat: 0.0)
    right = normal_tree(live)
    for step in range(1 + part, 1000, 3):
        shutil.rmtree(live)
        restore("drafter", cache_dir=live, store=store)
        wear(live)
        before = normal_tree(live)
        died = dies_at(step, lambda: once(live, store))
        check_live(live, before, right)
        if not died:
            break
    assert not died and step > 12
    assert normal_tree(live) == right


def wear(live: Path) -> None:
    min(live.glob("??/*.so")).unlink()
    max(live.glob("??/*.so")).write_bytes(b"\x7fELF cut")
    shutil.rmtree(kernels(live)[0])
    min(kernels(live)[1].glob("*.cubin")).write_bytes(b"")
    shutil.rmtree(live / "fxgraph")


def test_a_watch_that_was_killed_is_followed_by_another(live: Path, store: Path, cache: Path):
    for _ in range(3):
        guard = Guard(cache_dir=live, store=store).__enter__()
        before = normal_tree(live)
        shutil.rmtree(live)
        guard.wait_for("gone")
        os.kill(guard.pid, signal.SIGKILL)
        guard.__exit__()
        if live.exists():
            check_live(live, {}, before)
        assert watcher_of(live) is None
        once(live, store)  # it knows which: nobody has told the killed one to end
        assert is_whole(live, cache)


# Once, and which snapshot


def test_once(live: Path, store: Path, cache: Path, saved: str):
    assert watch(cache_dir=live, store=store, once=True).entries == 0
    shutil.rmtree(live / "aotautograd")
    events: list[Event] = []
    result = watch(cache_dir=live, store=store, once=True, tell=events.append)
    assert (result.ok, result.entries, result.files, result.snapshot.id) == (True, 3, 3, saved)
    assert [event.event for event in events] == ["gone", "put-back", "ended"]
    assert is_whole(live, cache) and watcher_of(live) is None


def test_a_directory_that_is_not_there_is_made(saved: str, store: Path, cache: Path, tmp_path: Path):
    assert watch("drafter", cache_dir=tmp_path / "new", store=store, once=True).ok
    assert is_whole(tmp_path / "new", cache)


def test_the_snapshot_is_what_was_restored_here(
    live: Path, store: Path, cache: Path, saved: str, monkeypatch: pytest.MonkeyPatch
):
    """The name has moved, and is not followed; nor is the configured one."""
    make_cache(cache, seed=3, graphs=1)
    newer = snapshot("drafter", cache_dir=cache, store=store, wait=0).snapshot.id
    monkeypatch.setenv("CACHEKEEPER_NAME", "drafter")
    assert watch(cache_dir=live, store=store, once=True).snapshot.id == saved
    assert watch(newer[:12], cache_dir=live, store=store, once=True).snapshot.id == newer
    (live / ".cachekeeper/restored.json").write_bytes(b"{nonsense")
    assert watch(cache_dir=live, store=store, once=True).snapshot.id == newer


def test_where_nothing_says_which(saved: str, store: Path, tmp_path: Path):
    with pytest.raises(NotFound, match="nothing says which snapshot"):
        watch(cache_dir=tmp_path / "new", store=store, once=True)
    with pytest.raises(NotFound):
        watch("draftr", cache_dir=tmp_path / "new", store=store, once=True)
    for options in ({"reference": ""}, {"rate": 0}, {"interval": -1}):
        with pytest.raises(UsageError):
            watch(cache_dir=tmp_path / "new", store=store, once=True, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="inside a directory"):
        watch("drafter", cache_dir=store / "packs", store=store, once=True)
    assert not (tmp_path / "new").exists()


def test_the_store_that_it_was_restored_from_is_named(live: Path, tmp_path: Path, cache: Path):
    snapshot("other", cache_dir=cache, store=tmp_path / "second", wait=0, message="another")
    with pytest.raises(NotFound) as caught:
        watch(cache_dir=live, store=tmp_path / "second", once=True)
    assert caught.value.hint == f"it was restored from file://{tmp_path}/store: name that with --store"


def test_a_snapshot_that_was_not_restored_here_must_fit(live: Path, store: Path, machine: Machine, tmp_path: Path):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    assert watch(cache_dir=live, store=store, once=True).ok  # it was, whatever was allowed then
    with pytest.raises(EnvironmentMismatch):
        watch("drafter", cache_dir=tmp_path / "new", store=store, once=True)


def test_only_the_kinds_that_were_restored(live: Path, store: Path):
    marker = live / ".cachekeeper/restored.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "only": ["triton", "native"]}))
    shutil.rmtree(live / "fxgraph")
    shutil.rmtree(live / "triton")
    watch(cache_dir=live, store=store, once=True)
    assert (live / "triton").exists() and not (live / "fxgraph").exists()


def test_that_another_was_restored_meanwhile_is_told(guard: Guard, live: Path, store: Path, cache: Path, saved: str):
    make_cache(cache, seed=3, graphs=1)
    snapshot("other", cache_dir=cache, store=store, wait=0)
    restore("other", cache_dir=live, store=store)
    shutil.rmtree(live / "triton")
    guard.wait_for("note", f"was restored here: paused, {saved[:8]} is not put back any more")
    assert not (live / "triton").exists()


def test_a_snapshot_meanwhile_does_not_end_the_keeping(guard: Guard, live: Path, store: Path, cache: Path, saved: str):
    newer = snapshot("drafter", cache_dir=live, store=store, message="after the job").snapshot.id
    shutil.rmtree(live / "triton")
    becomes_whole(live, cache)
    guard.wait_for("note", f"{newer[:8]} was saved from here: this watch keeps {saved[:8]}")


def test_what_was_removed_and_swept_is_no_damage(live: Path, store: Path, saved: str):
    shutil.rmtree(live / "triton")
    told: list[Event] = []

    def tell(event: Event) -> None:
        told.append(event)
        if event.event == "gone":  # the watch has read the manifest by now
            for path in [*store.glob("packs/*"), *store.glob("snapshots/*")]:
                path.unlink()

    assert not watch(cache_dir=live, store=store, once=True, tell=tell).ok
    [trouble] = [event for event in told if event.event == "trouble"]
    assert trouble.code == "not-found" and f"snapshot {saved[:8]} was removed from" in trouble.text


def test_a_link_in_the_place_of_a_library_goes_to_quarantine(live: Path, store: Path, cache: Path, tmp_path: Path):
    library = min(live.glob("??/*.main.so"))
    evil = tmp_path / "evil.so"
    evil.write_bytes(b"not yours")
    library.unlink()
    library.symlink_to(evil)
    assert watch(cache_dir=live, store=store, once=True).ok
    assert is_whole(live, cache) and not library.is_symlink()
    assert [path.readlink() for path in live.glob(".cachekeeper/quarantine/**/*.so")] == [evil]
    assert evil.read_bytes() == b"not yours"


def test_the_last_word_on_other_bytes_is_not_that_it_is_kept(live: Path, store: Path, saved: str):
    module = min(live.glob("??/*.py"))
    module.write_bytes(module.read_bytes() + b"# mine\n")
    told: list[Event] = []
    assert watch(cache_dir=live, store=store, once=True, tell=told.append).ok
    assert f"is not as {saved[:8]}: 1 file with other bytes, sound" in told[-1].text
    assert f"`cachekeeper verify {saved[:8]} --live {live} --repair`" in told[-1].text


def test_what_was_saved_from_a_directory_is_kept_there(saved: str, store: Path, cache: Path):
    make_triton_entry(cache / "triton" / "0", seed=99)
    newer = snapshot("drafter", cache_dir=cache, store=store).snapshot.id
    right = unplaced(cache)
    shutil.rmtree(cache / "triton")
    result = watch(cache_dir=cache, store=store, once=True)
    assert (result.snapshot.id, result.ok) == (newer, True) and unplaced(cache) == right


def test_that_the_name_has_moved_is_told_and_not_followed(
    live: Path, store: Path, cache: Path, saved: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cachekeeper.watching.keeping._NAME_SECONDS", 0.0)
    with Guard(reference="drafter", cache_dir=live, store=store, interval=0.1) as guard:
        make_cache(cache, seed=3, graphs=1)
        newer = snapshot("drafter", cache_dir=cache, store=store, wait=0).snapshot.id
        guard.wait_for("note", f"drafter is {newer[:8]} now: this watch keeps {saved[:8]}")
        shutil.rmtree(live)
        guard.wait_for("put-back")
    assert json.loads((live / ".cachekeeper/restored.json").read_text())["snapshot"] == saved


def test_where_watches_run_out_it_goes_on_by_polling(
    live: Path, store: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from cachekeeper.watching.inotify import Inotify

    add = Inotify.add

    def refuse(self: Inotify, directory: str) -> int:
        if (tmp_path / "full").exists():
            raise OSError(28, "No space left on device")
        return add(self, directory)

    monkeypatch.setattr(Inotify, "add", refuse)
    with Guard(cache_dir=live, store=store, interval=0.1) as guard:
        assert guard.told("watching", "inotify")
        (tmp_path / "full").touch()
        for _ in range(2):
            shutil.rmtree(live)
            becomes_whole(live, cache)
        assert guard.told("note", "polling from now on", "max_user_watches")


def test_a_watch_takes_hardly_any_time_when_nothing_happens(guard: Guard):
    def ticks() -> int:
        fields = Path(f"/proc/{guard.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    time.sleep(1.5)  # what was restored a moment ago is judged now
    before = ticks()
    time.sleep(2)
    assert ticks() - before <= 2


def test_a_python_that_is_killed_takes_the_watch_beside_it_along(live: Path, store: Path):
    """`killed_after` gives the pid of nobody: the lock tells who watches."""

    def work() -> None:
        with Guard(cache_dir=live, store=store):
            time.sleep(60)

    from tests.faults.children import kill, start

    pid = start(work)
    wait_for(lambda: watcher_of(live) not in (None, -1))
    kill(pid)
    finish(pid)
    wait_for(lambda: watcher_of(live) is None)


def test_at_random_moments(live: Path, store: Path, cache: Path):
    before = normal_tree(live)
    for number in range(8):
        shutil.rmtree(live, ignore_errors=True)
        killed_after(0.02 + number * 0.015, lambda: watch("drafter", cache_dir=live, store=store, once=True))
        if live.exists():
            check_live(live, {}, before)
    watch("drafter", cache_dir=live, store=store, once=True)
    assert cachekeeper.verify("drafter", live=live, store=store).ok


# What was restored of the snapshot


def test_what_a_restore_of_some_kinds_left_is_no_loss(saved: str, store: Path, tmp_path: Path):
    some = tmp_path / "some"
    restore("drafter", cache_dir=some, store=store, only=["triton"])
    right = normal_tree(some)
    shutil.rmtree(kernels(some)[0])
    assert watch(cache_dir=some, store=store, once=True).entries == 1
    assert normal_tree(some) == right
    with Guard(cache_dir=some, store=store):
        shutil.rmtree(some)  # the marker, too
        wait_for(lambda: some.exists() and normal_tree(some) == right)
    assert watch(cache_dir=some, store=store, once=True).ok and normal_tree(some) == right


def test_a_torn_kernel_gets_what_it_lacks(live: Path, store: Path, cache: Path):
    kernel = kernels(live)[0]
    for pattern in ("*.cubin", "__grp__*"):
        next(kernel.glob(pattern)).unlink()
    there = {path: path.stat().st_ino for path in kernel.iterdir()}
    watch(cache_dir=live, store=store, once=True)
    assert is_whole(live, cache) and {path: path.stat().st_ino for path in there} == there
    assert [path.name for path in (live / ".cachekeeper").iterdir()] == ["restored.json"]


def test_a_torn_kernel_with_a_damaged_file_becomes_whole(live: Path, store: Path, cache: Path):
    kernel = kernels(live)[0]
    next(kernel.glob("*.ptx")).unlink()
    next(kernel.glob("*.cubin")).write_bytes(b"")
    assert watch(cache_dir=live, store=store, once=True).ok and is_whole(live, cache)


def test_the_evidence_says_what_was_found(live: Path, store: Path):
    library, kernel = min(live.glob("??/*.so")), kernels(live)[0]
    library.write_bytes(b"cut")
    next(kernel.glob("*.cubin")).write_bytes(b"")
    watch(cache_dir=live, store=store, once=True)
    found = [json.loads(path.read_text()) for path in live.glob(".cachekeeper/quarantine/*/evidence.json")]
    about = {file["path"]: file for document in found for file in document["files"]}
    assert about.keys() == {str(path.relative_to(live)) for path in (library, *kernel.iterdir())}
    bad = about[str(library.relative_to(live))]
    assert bad["found"]["size"] == 3 and bad["expected"]["size"] == library.stat().st_size
    assert bad["found"]["sha256"] == hashlib.sha256(b"cut").hexdigest() and bad["structure"] != "sound"
