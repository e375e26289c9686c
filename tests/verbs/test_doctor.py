"""The verb: each condition made for real where this machine lets us, and nothing left behind."""

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from cachekeeper import environment
from cachekeeper.models import Fact, Fingerprint
from cachekeeper.repository import open_repository
from cachekeeper.stores import MemoryStore
from cachekeeper.testing import make_cache, make_triton_entry
from cachekeeper.verbs.clear import clear
from cachekeeper.verbs.doctor import (
    DoctorResult,
    cleaners,
    doctor,
    filesystem,
    ownership,
    place,
    remedies,
    snapshots,
)
from cachekeeper.verbs.doctor.place import Place, mount_of, probe
from cachekeeper.verbs.snapshot import snapshot

OTHER = 12345


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A whole cache that torch would use, and a store beside it."""
    directory = make_cache(tmp_path / "cache")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(directory))
    monkeypatch.setenv("CACHEKEEPER_STORE", str(tmp_path / "store"))
    return directory


@pytest.fixture
def mounted(tmp_path):
    """Mounts a small tmpfs with options; unmounted at the end."""
    points = []

    def mount(options: str) -> Path:
        point = tmp_path / f"mount{len(points)}"
        point.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs", point], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"may not mount here: {done.stderr.strip()}")
        points.append(point)
        return point

    yield mount
    for point in points:
        subprocess.run(["umount", point], check=True)


@pytest.fixture
def root():
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")


@contextlib.contextmanager
def as_user(uid: int):
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_directory_of_other(root):
    """A cache that belongs to another user, in a place which that user can reach."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        directory = make_cache(Path(name, "cache"))
        for path in [directory, *directory.rglob("*")]:
            os.chown(path, OTHER, -1)
        yield directory


def levels(result: DoctorResult, check: str) -> list[str]:
    return [finding.level for finding in result.findings if finding.check == check]


def the(result: DoctorResult, check: str, level: str):
    found = [finding for finding in result.findings if (finding.check, finding.level) == (check, level)]
    assert len(found) == 1, [*result.findings]
    return found[0]


def tree(directory: Path) -> dict[str, tuple[int, int, int]]:
    paths = [directory, *sorted(directory.rglob("*"))]
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size, path.lstat().st_mode) for path in paths}


# A good machine


def test_a_good_cache_has_nothing_wrong_and_is_left_as_it_was(cache, capsys):
    snapshot("drafter", wait=0)
    store = cache.parent / "store"
    before = tree(cache), tree(store)
    result = doctor()
    assert (tree(cache), tree(store)) == before
    assert capsys.readouterr() == ("", "")
    assert result.ok
    assert (result.cache_dir, result.source) == (cache, "TORCHINDUCTOR_CACHE_DIR")
    assert result.store == store.as_uri()
    good = ("cache-dir", "writable", "exec", "locks", "owner", "files", "exposure", "switches", "torch", "fingerprint")
    assert {check: levels(result, check) for check in good} == {check: ["ok"] for check in good}
    assert "drafter" in the(result, "snapshots", "ok").message
    # tmp_path is under /tmp: the only thing to warn of is the store there
    warnings = {finding.check for finding in result.findings if finding.level == "warning"}
    assert warnings <= {"store"}


def test_every_finding_is_in_kebab_case_and_what_is_wrong_says_what_to_do(cache):
    for finding in doctor().findings:
        assert finding.check == finding.check.lower().replace("_", "-").replace(" ", "-")
        assert finding.message
        assert finding.fix or finding.level == "ok"
        assert "\n" not in finding.fix + finding.message


# Where


def test_relative_variable(cache, monkeypatch):
    monkeypatch.chdir(cache.parent)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "cache")
    result = doctor()
    assert result.cache_dir == cache
    assert the(result, "cache-dir", "warning").fix == f"export TORCHINDUCTOR_CACHE_DIR={shlex.quote(str(cache))}"


def test_tilde_is_not_expanded_by_torch_but_by_the_fix(cache, monkeypatch, own_environment):
    monkeypatch.chdir(cache.parent)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "~/cache")
    result = doctor()
    assert result.cache_dir == cache.parent / "~" / "cache"
    fixes = {finding.fix for finding in result.findings if (finding.check, finding.level) == ("cache-dir", "warning")}
    assert fixes == {f"export TORCHINDUCTOR_CACHE_DIR={own_environment}/cache"}


def test_empty_variable(cache, monkeypatch):
    monkeypatch.chdir(cache)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    assert the(doctor(), "cache-dir", "warning").fix == "unset TORCHINDUCTOR_CACHE_DIR"


def test_given_directory_that_torch_would_not_use(cache, tmp_path):
    other = make_cache(tmp_path / "other")
    result = doctor(cache_dir=other)
    assert (result.cache_dir, result.source) == (other, "given")
    finding = the(result, "cache-dir", "note")
    assert str(cache) in finding.message
    assert finding.fix == f"export TORCHINDUCTOR_CACHE_DIR={other}"


def test_no_temporary_directory_at_all(cache, monkeypatch):
    def refuse():
        raise FileNotFoundError("no temporary directory can be written to")

    monkeypatch.setattr("cachekeeper.verbs.doctor.cache_directory", refuse)
    result = doctor()
    assert not result.ok
    assert the(result, "cache-dir", "error").fix.startswith("export TORCHINDUCTOR_CACHE_DIR=")
    assert levels(result, "writable") == []
    assert levels(doctor(cache_dir=cache), "writable") == ["ok"]


def test_full_tmpdir_is_not_the_one_that_torch_takes(mounted, monkeypatch, tmp_path):
    full = mounted("size=64k")
    fill(full)
    monkeypatch.setenv("TMPDIR", str(full))
    monkeypatch.setenv("CACHEKEEPER_STORE", str(tmp_path / "store"))
    result = doctor()
    assert full not in result.cache_dir.parents
    assert str(full) in the(result, "cache-dir", "warning").message


def fill(directory: Path) -> None:
    with contextlib.suppress(OSError), open(directory / "filler", "wb", buffering=0) as file:
        while file.write(bytes(4096)) == 4096:
            pass


def test_directory_that_is_not_there_yet_is_not_made(cache, monkeypatch):
    absent = cache / "not" / "yet"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(absent))
    result = doctor()
    assert str(cache) in the(result, "writable", "ok").message
    assert not absent.parent.exists()
    assert levels(result, "owner") == levels(result, "files") == []


@pytest.mark.parametrize("below", ["", "/deeper/still"])
def test_file_in_the_way(cache, monkeypatch, below):
    obstacle = cache / "file"
    obstacle.write_text("x")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", f"{obstacle}{below}")
    finding = the(doctor(), "writable", "error")
    assert finding.message.startswith(f"{obstacle} is not a directory")
    assert finding.fix.startswith("export TORCHINDUCTOR_CACHE_DIR=")


def test_link_to_nothing(cache, monkeypatch):
    link = cache.parent / "link"
    link.symlink_to(cache / "gone")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(link))
    assert the(doctor(), "writable", "error").fix == f"rm {link}"


def test_link(cache, monkeypatch):
    link = cache.parent / "link"
    link.symlink_to(cache)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(link))
    result = doctor()
    assert result.ok
    assert the(result, "symlink", "note").fix == f"export TORCHINDUCTOR_CACHE_DIR={cache}"


def test_link_of_another_user(cache, monkeypatch, root):
    link = cache.parent / "link"
    link.symlink_to(cache)
    os.lchown(link, OTHER, -1)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(link))
    assert f"uid {OTHER}" in the(doctor(), "symlink", "warning").message


# The filesystem


def test_noexec(mounted, monkeypatch, cache):
    point = mounted("size=8m,noexec")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(point / "cache"))
    result = doctor()
    assert not result.ok
    assert "is mounted noexec" in the(result, "exec", "error").message
    assert str(point) not in the(result, "exec", "error").fix
    assert probe(point).execute  # what the flag says is true
    assert list(point.iterdir()) == []


def test_full_disk(mounted, monkeypatch, cache):
    point = mounted("size=64k")
    fill(point)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(point))
    result = doctor()
    assert "No space left" in the(result, "writable", "error").message
    assert the(result, "space", "error").message == "0 B free"
    assert [path.name for path in point.iterdir()] == ["filler"]


def test_little_space_and_few_inodes(mounted, monkeypatch, cache):
    point = mounted("size=128m,nr_inodes=100")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(point))
    space = [finding for finding in doctor().findings if finding.check == "space"]
    assert [finding.level for finding in space] == ["warning", "warning"]
    assert "128 MiB free" in space[0].message
    assert "99 more files" in space[1].message


def test_no_inode_left(mounted, monkeypatch, cache):
    point = mounted("size=128m,nr_inodes=3")
    for name in "ab":
        (point / name).touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(point))
    result = doctor()
    assert levels(result, "space") == ["warning", "error"]
    assert levels(result, "writable") == ["error"]


def test_memory_filesystem(mounted, monkeypatch, cache):
    point = mounted("size=8m")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(point))
    monkeypatch.setenv("CACHEKEEPER_STORE", str(point / "store"))
    result = doctor()
    assert "tmpfs" in the(result, "filesystem", "note").message
    assert any("on tmpfs" in finding.message for finding in result.findings if finding.check == "store")


MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:40 / {point} rw - {type} server:/export rw,vers=4.2
"""


@pytest.mark.parametrize(
    ("type_", "check_level"),
    [(type_, "warning") for type_ in ("nfs", "nfs4", "lustre", "gpfs", "fuse.sshfs", "virtiofs", "9p", "cifs", "ceph")]
    + [("overlay", "note"), ("ramfs", "note"), ("xfs", "ok"), ("fuse.bindfs", "ok")],
)
def test_kinds_of_filesystem(cache, monkeypatch, tmp_path, type_, check_level):
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS.format(point=cache, type=type_))
    monkeypatch.setattr(place, "MOUNTINFO", table)
    finding = the(doctor(), "filesystem", check_level)
    assert type_ in finding.message
    if check_level == "warning":
        assert "server:/export" in finding.message
        assert str(cache) not in finding.fix


def test_longest_and_latest_mount_counts(monkeypatch, tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(
        MOUNTS.format(point=f"{tmp_path}/with\\040space", type="nfs4")
        + f"41 27 0:41 / {tmp_path}/with rw - xfs /dev/vdb rw\n"
        + f"42 27 0:42 / {tmp_path}/twice rw - nfs a:/b rw\n"
        + f"43 27 0:43 / {tmp_path}/twice rw - tmpfs tmpfs rw\n"
        + "nonsense\n"
    )
    monkeypatch.setattr(place, "MOUNTINFO", table)
    types = {name: mount_of(tmp_path / name).type for name in ("with space/x", "with", "without", "twice/x")}
    assert types == {"with space/x": "nfs4", "with": "xfs", "without": "ext4", "twice/x": "tmpfs"}
    monkeypatch.setattr(place, "MOUNTINFO", tmp_path / "absent")
    assert mount_of(tmp_path) is None


def test_no_locks(cache, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    result = doctor()
    assert "No locks available" in the(result, "locks", "warning").message
    assert result.ok


def test_probe_by_name_leaves_nothing(cache, monkeypatch):
    seen = []
    real_open = os.open

    def without_unnamed_files(path, flags, *rest, **more):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        if flags & os.O_CREAT and str(path).startswith(str(cache)):
            seen.append(path)
        return real_open(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", without_unnamed_files)
    before = sorted(cache.rglob("*"))
    assert probe(cache) == place.Probe()
    assert len(seen) == 1
    assert not environment_keeps(seen[0].name)
    assert probe(cache, named=False) == place.Probe()
    assert len(seen) == 1
    assert sorted(cache.rglob("*")) == before

    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, "_trouble_locking", interrupt)
    with pytest.raises(KeyboardInterrupt):
        probe(cache)
    assert sorted(cache.rglob("*")) == before


def environment_keeps(name: str) -> bool:
    from cachekeeper.inductor import classify

    return classify(name) is not None


# How long it lasts


def lifetime(path: Path) -> dict[str, str]:
    return {finding.check: finding.level for finding in filesystem.lifetime(Place.at(path))}


def rules(directory: Path, **files: str) -> Path:
    directory.mkdir()
    for name, text in files.items():
        (directory / f"{name}.conf").write_text(text)
    return directory


@pytest.fixture(autouse=True)
def no_cleaners(monkeypatch, tmp_path):
    """None is configured, whatever this machine has."""
    monkeypatch.setattr(cleaners, "CLEANING_RULES", ())
    monkeypatch.setattr(cleaners, "_REAPERS", {})
    monkeypatch.setattr(cleaners, "SYSTEMD_RUNS", tmp_path / "no systemd")


@pytest.fixture
def systemd(monkeypatch, tmp_path):
    """It runs, with its timer; the directory of that unit."""
    units = tmp_path / "units"
    units.mkdir()
    (units / "systemd-tmpfiles-clean.timer").touch()
    monkeypatch.setattr(cleaners, "SYSTEMD_RUNS", tmp_path)
    monkeypatch.setattr(cleaners, "_UNITS", (units,))
    return units


def said(path: Path, check: str = "tmp-cleaner") -> str:
    return " / ".join(finding.message for finding in filesystem.lifetime(Place.at(path)) if finding.check == check)


def test_cleaners_and_reboots():
    assert lifetime(Path("/tmp/torchinductor_x")) == {"tmp": "note", "tmp-cleaner": "note"}
    assert lifetime(Path("/var/tmp/torchinductor_x")) == {"tmp-cleaner": "note"}
    assert lifetime(Path("/srv/tmp/torchinductor_x")) == {}
    cleaner = list(filesystem.lifetime(Place.at(Path("/tmp/torch inductor"))))[1]
    assert cleaner.fix == "cachekeeper doctor --fix --cache-dir '/tmp/torch inductor'   # prints the rule"


def test_tmpfiles_rules(monkeypatch, tmp_path, systemd):
    vendor = rules(tmp_path / "vendor", tmp="# q /tmp 1777 root root 99d\nq /tmp 1777 root root 10d\n")
    monkeypatch.setattr(cleaners, "CLEANING_RULES", (vendor, tmp_path / "absent"))
    path = Path("/tmp/torchinductor_x")
    assert said(path).startswith("systemd-tmpfiles deletes files there after 10d (tmp.conf), each on its own")
    assert "does not run here" not in said(path)
    kept = rules(tmp_path / "kept", torch="x /tmp/torchinductor_*\n")
    monkeypatch.setattr(cleaners, "CLEANING_RULES", (vendor, kept))
    assert lifetime(path) == {"tmp": "note", "tmp-cleaner": "ok"}
    assert lifetime(Path("/tmp/other")) == {"tmp": "note", "tmp-cleaner": "note"}
    masked = rules(tmp_path / "etc", tmp="q /tmp 1777 root root -\n")
    monkeypatch.setattr(cleaners, "CLEANING_RULES", (vendor, masked))
    assert "10d" not in said(path)


def test_a_timer_that_is_masked_or_not_there(monkeypatch, tmp_path, systemd):
    vendor = rules(tmp_path / "vendor", tmp="q /tmp 1777 root root 10d\n")
    monkeypatch.setattr(cleaners, "CLEANING_RULES", (vendor,))
    (systemd / "systemd-tmpfiles-clean.timer").unlink()
    assert "its timer does not run here" in said(Path("/tmp/x"))
    (systemd / "systemd-tmpfiles-clean.timer").symlink_to("/dev/null")
    assert "its timer does not run here" in said(Path("/tmp/x"))


def test_emptied_at_boot(monkeypatch, tmp_path, systemd):
    vendor = rules(tmp_path / "vendor", tmp="D /tmp 1777 root root -\nx /tmp/mine\n")
    monkeypatch.setattr(cleaners, "CLEANING_RULES", (vendor,))
    make_cache(tmp_path / "cache")
    found = {finding.check: finding for finding in filesystem.lifetime(Place.at(tmp_path / "cache"))}
    assert found["tmp"].message.endswith("at boot (tmp.conf), and no rule exempts from that")
    assert found["tmp"].fix.startswith(f'eval "$(cachekeeper move {tmp_path}/cache --to ')
    assert found["tmp-cleaner"].level == "ok"
    assert found["tmp-cleaner"].message == "systemd-tmpfiles deletes nothing there for its age (tmp.conf)"


def test_reapers(monkeypatch, tmp_path):
    script, config = tmp_path / "tmpreaper", tmp_path / "tmpreaper.conf"
    monkeypatch.setattr(cleaners, "_REAPERS", {"tmpreaper": script})
    monkeypatch.setattr(cleaners, "REAPER_CONFIG", config)
    script.write_text("#! /bin/sh\ntmpreaper --protect '/tmp/.X*-lock' $TMPREAPER_DIRS\n")
    assert "tmpreaper deletes files there, each" in said(Path("/tmp/x"))
    config.write_text("SHOWWARNING=true\nTMPREAPER_TIME=7d\n")
    assert "tmpreaper" not in said(Path("/tmp/x"))
    config.write_text("TMPREAPER_TIME='7d'\n")
    assert "tmpreaper deletes files there after 7d" in said(Path("/tmp/x"))
    assert said(Path("/srv/x")) == ""
    config.write_text("TMPREAPER_TIME=7d\nTMPREAPER_PROTECT_EXTRA='/tmp/.a /tmp/x'\n")
    assert "tmpreaper" not in said(Path("/tmp/x")) and "tmpreaper" in said(Path("/tmp/xy"))


# The real systemd-tmpfiles

TMPFILES = shutil.which("systemd-tmpfiles")
real_cleaner = pytest.mark.skipif(TMPFILES is None, reason="no systemd-tmpfiles")


def cleaned(tmp_path: Path, cache: Path, text: str, option: str = "--clean") -> list[str]:
    """What is left of a cache, and of old files beside it, when the rules have been applied."""
    config = tmp_path / "rules" / "test.conf"
    config.parent.mkdir(exist_ok=True)
    config.write_text(text)
    (cache / "fxgraph" / "ab").mkdir(parents=True)
    for path in (cache / "fxgraph" / "ab" / "graph", cache / "module", cache.parent / "other"):
        path.touch()
    time.sleep(0.1)  # the cleaner looks at the time of the last change, which nobody can set back
    assert TMPFILES is not None
    subprocess.run([TMPFILES, option, config], check=True, capture_output=True)
    return sorted(str(path.relative_to(tmp_path / "place")) for path in (tmp_path / "place").rglob("*"))


@real_cleaner
@pytest.mark.parametrize(
    "name", ["inductor", "with space", "*", "a[b]c?", "100%", 'say "hi"', "back\\slash", "#1", "%T"]
)
def test_the_rule_exempts_the_cache_and_nothing_else(tmp_path, name):
    cache = tmp_path / "place" / name
    (tmp_path / "place" / "innocent" / "deep").mkdir(parents=True)
    (tmp_path / "place" / "innocent" / "deep" / "old").touch()
    text = f"d {tmp_path}/place 0700 - - 1ms\n{cleaners.rule_for(cache)}\n"
    left = cleaned(tmp_path, cache, text)
    assert left == [name, *(f"{name}/{part}" for part in ("fxgraph", "fxgraph/ab", "fxgraph/ab/graph", "module"))]


@real_cleaner
@pytest.mark.parametrize(
    ("text", "exempt"),
    [
        ("d {place} 0700 - - 1ms", False),
        ("D {place} 0700 - - 1ms", False),
        ("e {place} - - - 1ms", False),
        ("e {place}/* - - - 1ms", False),
        ("q {place} 0700 - - 1ms", False),
        ("d {place} 0700 - - m:1ms", False),
        ("d {place} 0700 - - 1ms\nx {place}/inductor", True),
        ("d {place} 0700 - - 1ms\nx {place}/ind*", True),
        ("d {place} 0700 - - 1ms\nx {place}/other", False),
        ("d {place} 0700 - - 1ms\nx {place}/inductor/fx*", False),
        ("d {place} 0700 - - 1ms\nX {place}/inductor", False),
        ("d {place} 0700 - - 1ms\nd {place}/inductor 0700 - - -", True),
        ("d {place} 0700 - - -\nd {place}/inductor 0700 - - 1ms", False),
        ("d {place} 0700 - - 10d\nd {place}/inductor 0700 - - 1ms", False),
        ("d {place} 0700 - - 1ms\nz {place}/ind* 0700 - -", True),
        ("x {place}\nd {place}/inductor 0700 - - 1ms", False),
    ],
)
def test_what_the_rules_mean_is_what_systemd_makes_of_them(tmp_path, monkeypatch, text, exempt):
    cache = tmp_path / "place" / "inductor"
    left = cleaned(tmp_path, cache, text.format(place=tmp_path / "place") + "\n")
    assert ("inductor/module" in left) == exempt
    monkeypatch.setattr(cleaners, "CLEANING_RULES", (tmp_path / "rules",))
    found = cleaners.cleaning(cache)
    assert (found.age == "") == exempt


@real_cleaner
@pytest.mark.parametrize("kind", ["D {place} 0700 - - -", "R {place}", "R {place}/ind*"])
def test_no_rule_exempts_from_what_empties_at_boot(tmp_path, monkeypatch, kind, systemd):
    cache = tmp_path / "place" / "inductor"
    text = kind.format(place=tmp_path / "place") + f"\n{cleaners.rule_for(cache)}\n"
    left = cleaned(tmp_path, cache, text, "--remove")
    assert "inductor/module" not in left
    monkeypatch.setattr(cleaners, "CLEANING_RULES", (tmp_path / "rules",))
    assert cleaners.cleaning(cache).at_boot == "test.conf"


# What to do about it


def test_the_remedy_for_a_cleaner_is_a_rule_ready_to_install(cache, monkeypatch, tmp_path, systemd):
    vendor = rules(tmp_path / "vendor", tmp=f"d {tmp_path} 1777 root root 10d\n")
    monkeypatch.setattr(cleaners, "CLEANING_RULES", (vendor,))
    monkeypatch.setattr(cleaners, "RULE_FILE", tmp_path / "etc" / "cachekeeper.conf")
    (tmp_path / "etc").mkdir()
    [remedy] = [remedy for remedy in remedies(doctor()) if remedy.check == "tmp-cleaner"]
    install = "\n".join(line.replace("sudo ", "") for line in remedy.commands[:4])
    subprocess.run(["sh", "-c", install], check=True, stdout=subprocess.DEVNULL)
    monkeypatch.setattr(cleaners, "CLEANING_RULES", (vendor, tmp_path / "etc"))
    assert cleaners.cleaning(cache).exempt == "cachekeeper.conf"
    assert levels(doctor(), "tmp-cleaner") == ["ok"]
    assert remedy.commands[4] == f"systemd-tmpfiles --cat-config | grep -n {cache.name}"
    assert f"cachekeeper move {cache} --to " in remedy.commands[5]


def test_the_remedy_for_a_reaper(cache, monkeypatch, tmp_path):
    script, config = tmp_path / "tmpreaper", tmp_path / "tmpreaper.conf"
    script.write_text("tmpreaper $TMPREAPER_DIRS\n")
    config.write_text("TMPREAPER_TIME=7d\n")
    monkeypatch.setattr(cleaners, "_REAPERS", {"tmpreaper": script})
    monkeypatch.setattr(cleaners, "REAPER_CONFIG", config)
    commands = cleaners.reaper_commands("tmpreaper", Path("/tmp/x y"))
    subprocess.run(["sh", "-c", commands[0].replace("sudo ", "")], check=True, stdout=subprocess.DEVNULL)
    assert config.read_text().endswith('TMPREAPER_PROTECT_EXTRA="$TMPREAPER_PROTECT_EXTRA /tmp/x y"\n')
    assert "--protect '/tmp/x y'" in commands[1]


def test_every_remedy_is_a_line_that_a_shell_can_read(cache, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    cache.chmod(0o777)
    found = remedies(doctor())
    assert {"world-writable", "switches", "store"} <= {remedy.check for remedy in found}
    assert len({remedy.commands for remedy in found}) == len(found)
    script = "\n".join(line for remedy in found for line in remedy.commands)
    subprocess.run(["sh", "-n", "-c", script], check=True)


# Whose it is


def test_open_parent(cache, monkeypatch):
    parent = cache.parent / "open"
    directory = make_cache(parent / "cache")
    parent.chmod(0o777)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(directory))
    assert the(doctor(), "world-writable-parent", "warning").fix == f"sudo chmod +t {parent}"
    parent.chmod(0o1777)
    result = doctor()
    assert levels(result, "world-writable-parent") == []
    assert levels(result, "exposure") == ["ok"]


def test_open_parent_behind_a_link(cache, monkeypatch):
    parent = cache.parent / "open"
    link = cache.parent / "link"
    link.symlink_to(make_cache(parent / "cache"))
    parent.chmod(0o777)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(link))
    assert str(parent) in the(doctor(), "world-writable-parent", "warning").message


def test_world_writable_cache(cache):
    cache.chmod(0o777)
    assert the(doctor(), "world-writable", "warning").fix == f"chmod go-w {cache}"


def test_shared_temporary_directory_as_cache_is_not_to_be_closed(cache):
    cache.chmod(0o1777)
    fix = the(doctor(), "world-writable", "warning").fix
    assert fix == f"export TORCHINDUCTOR_CACHE_DIR={cache}/torchinductor_{os.geteuid()}"


def test_files_of_another_user(cache, root):
    victims = sorted(cache.rglob("*.so"))[:2]
    for path in victims:
        os.chown(path, OTHER, -1)
    finding = the(doctor(), "files", "warning")
    assert finding.message.startswith("2 files (")
    assert victims[0].name in finding.message
    assert finding.fix == f"sudo chown -R 0 {cache}"


def test_owner_of_everything_is_never_changed_where_it_is_not_a_cache(tmp_path, root, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").touch()
    os.chown(tmp_path / "home" / "letter", OTHER, -1)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "home"))
    assert "chown" not in the(doctor(), "files", "warning").fix


def test_directory_of_another_user_seen_by_root(open_directory_of_other):
    result = doctor(cache_dir=open_directory_of_other)
    assert f"uid {OTHER}" in the(result, "owner", "warning").message
    assert levels(result, "files") == ["ok"]


def test_a_file_of_ones_own_without_permissions(open_directory_of_other):
    secret = next(open_directory_of_other.rglob("*.so"))
    os.chown(secret, OTHER, -1)
    secret.chmod(0)
    with as_user(OTHER):
        [finding] = ownership.contents(Place.at(open_directory_of_other))
    assert finding.level == "error" and secret.name in finding.message
    assert finding.fix == f"chmod -R u+rwX {open_directory_of_other}"


def test_unreadable_files_and_denied_directory(open_directory_of_other, own_environment):
    directory = open_directory_of_other
    secret = next(directory.rglob("*.so"))
    os.chown(secret, 0, 0)
    secret.chmod(0o600)
    closed = directory / "fxgraph"
    os.chown(closed, 0, 0)
    closed.chmod(0o700)
    with as_user(OTHER):
        found = list(ownership.contents(Place.at(directory)))
        assert [finding.level for finding in found] == ["warning", "error"]
        assert found[1].message.startswith("2 files (")
        assert secret.name in found[1].message
        assert "fxgraph" in found[1].message
        assert found[1].fix == f"sudo chown -R {OTHER} {directory}"
    os.chown(directory, 0, 0)
    with as_user(OTHER):
        here = Place.at(directory)
        [denied] = filesystem.writable(here, probe(here.nearest))
        assert denied.level == "error"
        assert "Permission denied" in denied.message
        assert "owner uid 0" in denied.message
        [owner] = ownership.owner(here)
        assert owner.level == "warning"


def test_leftovers(cache):
    workshop = cache / ".cachekeeper"
    (workshop / "aside" / "20260101").mkdir(parents=True)
    (workshop / "aside" / "20260101" / "old.so").write_bytes(bytes(2048))
    (workshop / "stage-abc" / "0").mkdir(parents=True)
    (workshop / "stage-abc" / "0" / "half").write_bytes(bytes(1024))
    os.chmod(workshop, 0o700)
    found = [finding for finding in doctor().findings if finding.check == "leftovers"]
    assert [finding.level for finding in found] == ["note", "note"]
    assert "2.0 KiB" in found[0].message
    assert found[0].fix.startswith(f"cachekeeper clear {cache} --empty-trash --dry-run ")
    assert "1 unfinished restore, 1.0 KiB" in found[1].message


def test_what_was_cleared_is_a_leftover(cache):
    trash = clear(cache).trash
    found = [finding for finding in doctor().findings if finding.check == "leftovers"]
    assert [finding.level for finding in found] == ["note"]
    assert str(trash.parent) in found[0].message
    looking = shlex.split(found[0].fix, comments=True)
    subprocess.run([sys.executable, "-m", *looking], check=True, stdout=subprocess.DEVNULL)
    assert levels(doctor(), "leftovers") == ["note"], "a fix that is run as it stands deletes nothing for good"
    looking.remove("--dry-run")
    subprocess.run([sys.executable, "-m", *looking], check=True, stdout=subprocess.DEVNULL)
    assert levels(doctor(), "leftovers") == []


def test_restore_at_work_is_no_leftover(cache):
    (cache / ".cachekeeper" / "stage-abc").mkdir(parents=True)
    descriptor = os.open(cache, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert levels(doctor(), "leftovers") == []
    finally:
        os.close(descriptor)
    assert levels(doctor(), "leftovers") == ["note"]


def test_workshop_of_another_user(cache, root):
    (cache / ".cachekeeper").mkdir()
    os.chown(cache / ".cachekeeper", OTHER, -1)
    assert levels(doctor(), "leftovers") == ["error"]


# The job


def with_facts(monkeypatch, **facts: Fact) -> None:
    found = environment.fingerprint()
    changed = Fingerprint(found.id, {**found.must, **facts}, found.should, found.recorded)
    monkeypatch.setattr("cachekeeper.verbs.doctor.fingerprint", lambda: changed)


@pytest.fixture
def triton_installed(monkeypatch):
    with_facts(monkeypatch, triton=Fact("3.6.0"))


def test_triton_not_installed(cache, monkeypatch):
    with_facts(monkeypatch, triton=Fact(None))
    assert levels(doctor(), "triton") == ["ok"]


def test_triton_variable_not_set(cache, triton_installed):
    assert the(doctor(), "triton", "note").fix == f"export TRITON_CACHE_DIR={cache}/triton/0"
    make_triton_entry(cache / "triton" / "1", seed=7)
    for seed in range(20, 26):
        make_triton_entry(cache / "triton" / "1", seed=seed)
    assert the(doctor(), "triton", "note").fix == f"export TRITON_CACHE_DIR={cache}/triton/1"


def test_triton_in_a_fresh_cache(tmp_path, monkeypatch, triton_installed):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "fresh"))
    assert the(doctor(), "triton", "note").fix == f"export TRITON_CACHE_DIR={tmp_path}/fresh/triton/shared"


def test_triton_inside_outside_and_relative(cache, monkeypatch, triton_installed):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache / "triton" / "shared"))
    assert levels(doctor(), "triton") == ["ok"]
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache.parent / "kernels"))
    assert "outside" in the(doctor(), "triton", "note").message
    monkeypatch.setenv("TRITON_CACHE_DIR", "kernels")
    assert "relative" in the(doctor(), "triton", "warning").message


def test_kernels_at_home(cache, own_environment, triton_installed):
    home = own_environment / ".triton" / "cache"
    home.mkdir(parents=True)
    (home / "notes.txt").touch()
    assert levels(doctor(), "triton") == ["note"]
    make_triton_entry(home)
    fixes = [finding.fix for finding in doctor().findings if finding.check == "triton"]
    assert fixes[1:] == [f"cachekeeper snapshot NAME --also {home}"]


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1", "0"),
        ("TORCH_COMPILE_FORCE_DISABLE_CACHES", "1", "0"),
        ("TORCHINDUCTOR_FX_GRAPH_CACHE", "0", "1"),
        ("TORCHINDUCTOR_AUTOGRAD_CACHE", "0", "1"),
        ("TORCHINDUCTOR_FREEZING", "1", "0"),
        ("TORCH_COMPILE_DEBUG", "1", "0"),
        ("INDUCTOR_PROVENANCE", "2", "0"),
        ("TRITON_ALWAYS_COMPILE", "1", "0"),
    ],
)
def test_switches(cache, monkeypatch, name, bad, good):
    monkeypatch.setenv(name, bad)
    finding = the(doctor(), "switches", "warning")
    assert finding.message.startswith(f"{name}={bad}: ")
    assert finding.fix == f"unset {name}"
    monkeypatch.setenv(name, good)
    assert levels(doctor(), "switches") == ["ok"]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.9.1+cu130", "while one traces, compiled calls of the others raise"),
        ("2.13.0+cpu", "outside a Dynamo compile"),
        ("2.14.1", "each thread traces on its own"),
        ("3.0.0", "each thread traces on its own"),
    ],
)
def test_threads(cache, monkeypatch, version, words):
    with_facts(monkeypatch, torch=Fact(version))
    result = doctor()
    assert the(result, "torch", "ok").message == f"torch {version}"
    assert words in the(result, "threads", "note").message
    assert "hang" in the(result, "threads", "note").message


def test_unknown_facts(cache, monkeypatch):
    missing = Fact(unknown="torch is not installed in this Python")
    with_facts(monkeypatch, torch=missing, cuda=missing, gpu=Fact(unknown="NVML says no"))
    result = doctor()
    assert levels(result, "torch") == ["error"] and not result.ok
    assert levels(result, "threads") == []
    unknown = [finding for finding in result.findings if finding.check == "fingerprint"]
    assert [finding.level for finding in unknown] == ["warning", "warning"]
    assert "torch, cuda (torch is not installed" in unknown[0].message
    assert "gpu (NVML says no)" in unknown[1].message


def test_unknown_variables(cache, monkeypatch):
    monkeypatch.setenv("CACHEKEEPER_STOER", "s3://user:secret@host")
    monkeypatch.setenv("CACHEKEEPER_ZZZZZZZZZZZZ", "1")
    found = [finding for finding in doctor().findings if finding.check == "variables"]
    assert [finding.level for finding in found] == ["warning", "warning"]
    assert "did you mean CACHEKEEPER_STORE?" in found[0].message
    assert found[0].fix == 'export CACHEKEEPER_STORE="$CACHEKEEPER_STOER"; unset CACHEKEEPER_STOER'
    assert found[1].fix == "unset CACHEKEEPER_ZZZZZZZZZZZZ"
    assert "secret" not in str(found)


# The store


def test_no_store_yet(cache):
    finding = the(doctor(), "store", "note")
    assert finding.fix == "cachekeeper snapshot NAME"
    assert not (cache.parent / "store").exists()


def test_store_inside_the_cache(cache):
    result = doctor(store=cache / "store")
    assert not result.ok
    assert "inside the cache directory" in the(result, "store", "error").message


def test_cache_inside_the_store_through_a_link(cache):
    link = cache.parent / "link"
    link.symlink_to(cache.parent)
    result = doctor(store=link)
    assert "inside the store" in "".join(
        finding.message for finding in result.findings if (finding.check, finding.level) == ("store", "error")
    )


def test_cache_that_is_a_link_into_the_store(cache):
    open_repository().prepare()
    inner = make_cache(cache.parent / "store" / "cache")
    link = cache.parent / "link"
    link.symlink_to(inner)
    assert "inside the store" in the(doctor(cache_dir=link), "store", "error").message


def test_store_under_tmp(cache):
    result = doctor(store="/tmp/cachekeeper-of-nobody")
    messages = [
        finding.message for finding in result.findings if (finding.check, finding.level) == ("store", "warning")
    ]
    assert any("under /tmp" in message for message in messages)
    assert not os.path.exists("/tmp/cachekeeper-of-nobody")


def test_the_place_in_use_is_not_proposed(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name, fix in (("cachekeeper", "/another/disk/cachekeeper"), ("other", f"{tmp_path}/cachekeeper")):
        [finding] = [
            each
            for each in snapshots.store_place(open_repository(tmp_path / name), None)
            if " under " in each.message or " on " in each.message
        ]
        assert finding.fix.startswith(f"export CACHEKEEPER_STORE={fix} ")


def test_store_that_is_none(cache, tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "letter").touch()
    assert "is not a cachekeeper store" in the(doctor(store=tmp_path / "files"), "store", "error").message
    assert "is not a directory" in the(doctor(store=tmp_path / "files" / "letter"), "store", "error").message
    assert the(doctor(store="gopher://host/x"), "store", "error").fix


@pytest.mark.parametrize("text", ['{"format": 99}', "{"])
def test_store_of_another_format_or_damaged(cache, tmp_path, text):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "format.json").write_text(text)
    assert "format" in the(doctor(), "store", "error").message


def test_store_that_cannot_be_written(cache, open_directory_of_other):
    store = open_directory_of_other.parent / "store"
    snapshot("drafter", store=store, wait=0)
    for part in [store, *store.rglob("*")]:
        part.chmod(0o755 if part.is_dir() else 0o444)
    repository = open_repository(store)
    with as_user(OTHER):
        found = list(snapshots.store_place(repository, None))
    assert any("restored, not saved" in finding.message for finding in found if finding.level == "warning")
    assert not any("restored, not saved" in finding.message for finding in snapshots.store_place(repository, None))


def test_full_store(cache, mounted):
    point = mounted("size=64k")
    fill(point)
    messages = [f.message for f in doctor(store=point / "store").findings if (f.check, f.level) == ("store", "warning")]
    assert "0 B free" in messages


def test_empty_store(cache):
    open_repository().prepare()
    assert the(doctor(), "snapshots", "note").fix == "cachekeeper snapshot NAME"


def test_newest_snapshot_does_not_fit(cache, monkeypatch):
    snapshot("drafter", wait=0)
    with_facts(monkeypatch, torch=Fact("1.0"))
    finding = the(doctor(), "snapshots", "note")
    assert "(torch)" in finding.message
    assert "nor does any other" in finding.message


def test_without_torch_nobody_knows_whether_it_fits(cache, monkeypatch):
    snapshot("drafter", wait=0)
    with_facts(monkeypatch, torch=Fact(unknown="torch is not installed"))
    finding = the(doctor(), "snapshots", "note")
    assert "may fit or not: torch is not installed" in finding.message
    assert "job's Python" in finding.fix


def test_the_newest_is_called_as_ls_calls_it(cache):
    saved = snapshot("drafter", wait=0).snapshot
    open_repository().move_name("other", saved.id)
    assert "(drafter, other)" in the(doctor(), "snapshots", "ok").message


def test_older_snapshot_fits(cache, monkeypatch):
    older = snapshot("drafter", wait=0).snapshot
    here = environment.fingerprint()
    strange = Fingerprint("0" * 12, {**here.must, "torch": Fact("1.0")}, here.should, here.recorded)
    with monkeypatch.context() as patch:
        patch.setattr("cachekeeper.verbs.snapshot.fingerprint", lambda **_: strange)
        patch.setattr("cachekeeper.verbs.snapshot.now_utc", lambda: "2999-01-01T00:00:00Z")
        snapshot("strange", wait=0)
    finding = the(doctor(), "snapshots", "note")
    assert finding.fix == f"cachekeeper restore {older.id[:8]}"


def test_unreadable_snapshots(cache):
    identifier = snapshot("drafter", wait=0).snapshot.id
    manifest = cache.parent / "store" / "snapshots" / f"{identifier}.json.zst"
    manifest.chmod(0o644)
    manifest.write_bytes(b"x" + manifest.read_bytes()[1:])
    assert identifier[:8] in the(doctor(), "snapshots", "warning").message


def test_store_in_memory(cache):
    store = MemoryStore()
    result = doctor(store=store)
    assert result.store == store.url
    assert levels(result, "store") == ["note"]


def test_a_check_that_cannot_be_made_does_not_end_the_others(cache, monkeypatch):
    def broken(place):
        raise OSError(116, "Stale file handle", "/x")
        yield

    monkeypatch.setattr(ownership, "contents", broken)
    result = doctor()
    assert "Stale file handle (/x)" in the(result, "files", "warning").message
    assert levels(result, "torch") == ["ok"]
