"""The command: what it says and answers in every mode, and its exit codes."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import pytest

from cachekeeper import megacache
from cachekeeper.models import Fact
from cachekeeper.verbs.import_cache import made_on
from tests import samples
from tests.verbs.conftest import Machine, unplaced

from .conftest import Command

GRAPH = "f" + "ab2" * 17
NOTE = "note: recorded as made here: H200 sm_90 cu130 2.11.0 (if not: --fingerprint FILE)\n"


@pytest.fixture(autouse=True)
def here(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_on, "fingerprint", lambda **_: machine.fingerprint)


@pytest.fixture
def archive(home: Path) -> Path:
    subprocess.run(["tar", "-C", home, "-czf", home / "x.tar.gz", "inductor"], check=True)
    return home / "x.tar.gz"


@pytest.fixture
def mega(home: Path) -> Path:
    artifacts = [megacache.Artifact("inductor", GRAPH, b"\x80\x05."), megacache.Artifact("later", "k", b"x")]
    (home / "x.mega").write_bytes(megacache.build(artifacts))
    return home / "x.mega"


def plain(said: str) -> str:
    """Without ids, and without lengths, which depend on zstd's version."""
    return re.sub(r"\b[0-9a-f]{8}\b", "7c1e04ab", re.sub(r"[\d.]+ (KiB|B)\b", "9.9 KiB", said))


def test_an_archive_in_words(home: Path, command: Command, archive: Path):
    said = command("import", archive, "--name", "drafter")
    assert (said.code, said.err) == (0, "")
    assert plain(said.out) == (
        "Read    tar.gz   27 files   9.9 KiB   from inductor/   (scratch skipped: 3)\n"
        "Stored  27 new files, 9.9 KiB written\n"
        "note: 2 files pointed to another directory, which would have been read instead; the snapshot has them right\n"
        + NOTE
        + "note: proof that a job hits it: `cachekeeper verify drafter --replay TARGET`\n"
        "ok  Imported 7c1e04ab as drafter: 2 graphs, 2 Triton kernels, 2 native modules, 3 autotune results\n"
        "hint: restore it with `cachekeeper restore drafter --verify`\n"
    )
    assert command("restore", "drafter", "--cache-dir", home / "back").code == 0
    assert unplaced(home / "back") == unplaced(home / "inductor")


def test_a_mega_cache_in_words(home: Path, command: Command, mega: Path):
    said = command("import", mega)
    assert (said.code, said.err) == (0, "")
    assert plain(said.out) == (
        "Read    mega-cache   2 files   9.9 KiB\n"
        "        1 inductor, 1 later\n"
        "Stored  2 new files, 9.9 KiB written\n"
        "Lacks   C++ libraries: torch builds those of graphs for CPUs again\n"
        "        max-autotune timings (cache/<hash>): torch measures again\n"
        "        Triton kernels that are in no graph's bundle\n"
        "        CUDA's own cache\n"
        "        AOTAutograd entries\n"
        "note: 1 artifact of type later, which is not known, kept below mega-cache/\n"
        + NOTE
        + "note: proof that a job hits it: `cachekeeper verify 7c1e04ab --replay TARGET`\n"
        "ok  Imported 7c1e04ab: 1 graph\n"
        "hint: restore it with `cachekeeper restore 7c1e04ab --verify`\n"
    )


def test_a_store_in_words(home: Path, command: Command, saved: str):
    said = command("import", home / "store", "--store", home / "other")
    assert (said.code, said.err) == (0, "")
    assert plain(said.out) == (
        f"Copied  1 snapshot, 9.9 KiB\nNames   drafter -> 7c1e04ab\nok  Imported from file://{home}/store\n"
    )
    said = command("import", home / "store", "--store", home / "other", "--name", "mine", "--only", saved[:8])
    assert plain(said.out).startswith("Copied  0 snapshots, 9.9 KiB   (1 already there)\nNames   mine -> 7c1e04ab\n")
    assert command("import", home / "store", "--store", home / "third", "-q") == (0, saved + "\n", "")


def test_json_and_quiet(home: Path, command: Command, archive: Path, mega: Path):
    document = command("import", archive, "--name", "drafter", "--json").json
    assert document["schema"] == "cachekeeper.import/1" and document["ok"] is True
    assert (document["format"], document["root"], document["passed_over"]) == ("tar.gz", "inductor", 3)
    assert document["saved"]["snapshot"]["header"]["origin"] == "imported from x.tar.gz (tar.gz)"
    assert document["copied"] is None and document["lacks"] == []
    said = command("import", mega, "--quiet")
    assert said.err == "" and re.fullmatch(r"[0-9a-f]{64}\n", said.out)
    document = command("import", mega, "--json").json
    assert document["artifacts"] == {"inductor": 1, "later": 1} and len(document["lacks"]) == 5


def test_options_reach_the_snapshot(home: Path, command: Command, archive: Path):
    command("import", archive, "--name", "drafter", "-m", "old", "--metric", "tok_s=2.5", "--tag", "batch=8")
    header = command("show", "drafter", "--json").json["snapshot"]["header"]
    assert (header["message"], header["metrics"], header["live"]) == ("old", {"tok_s": 2.5}, [])
    assert header["tags"] == {"batch": "8"}


def test_the_printed_fingerprint_is_taken(home: Path, command: Command, archive: Path, machine: Machine, monkeypatch):
    from dataclasses import replace

    from cachekeeper import environment
    from cachekeeper.environment.machine import identifier

    made = samples.fingerprint(torch="2.9.1")
    machine.fingerprint = replace(made, id=identifier(made.must))
    monkeypatch.setattr(environment, "fingerprint", lambda **_: machine.fingerprint)
    (home / "made.json").write_text(command("fingerprint", "--json").out)
    machine.fingerprint = samples.fingerprint()
    said = command("import", archive, "--name", "drafter", "--fingerprint", home / "made.json")
    assert said.code == 0 and f"recorded as made where {home}/made.json is from: H200" in said.out
    assert command("restore", "drafter", "--cache-dir", home / "new").code == 4


def test_another_environment_is_exit_4(home: Path, command: Command, archive: Path, machine: Machine):
    machine.fingerprint = samples.fingerprint(gpu=Fact(None))
    said = command("import", archive)
    assert (said.code, said.out) == (4, "")
    assert said.err.startswith(
        "error[environment-mismatch]: x.tar.gz was not made in this environment\n  kernels  sm_90   here no GPU\n"
    )
    assert command("import", archive, "--allow-mismatch").code == 0


def test_damage_is_exit_3(home: Path, command: Command, archive: Path, mega: Path, saved: str):
    mega.write_bytes(mega.read_bytes()[:-3])
    said = command("import", mega)
    assert said.code == 3 and said.err.startswith("error[damaged-cache]: the Mega-Cache is damaged: its checksum")
    archive.write_bytes(archive.read_bytes()[:-30])
    assert command("import", archive, "--json").error["code"] == "damaged-cache"
    [pack] = (home / "store/packs").iterdir()
    pack.chmod(0o644)
    pack.write_bytes(b"short")
    said = command("import", home / "store", "--store", home / "other")
    assert said.code == 3 and "NOT ok: 1 damaged" in said.out and "warning: not imported: snapshot" in said.err


def test_a_much_smaller_one_is_exit_3(home: Path, command: Command, saved: str, mega: Path):
    said = command("import", mega, "--name", "drafter")
    assert said.code == 3 and "warning: drafter was not moved" in said.err and "--force" in said.err
    assert command("import", mega, "--name", "drafter", "--force").code == 0


def test_nothing_in_it_is_exit_5(home: Path, command: Command):
    (home / "empty").write_bytes(b"")
    (home / "void.mega").write_bytes(megacache.build([]))
    for place in ("empty", "void.mega", "none"):
        assert command("import", home / place).code == 5
    assert not (home / "store").exists()


def test_usage_is_exit_2(home: Path, command: Command, archive: Path):
    (home / "x.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    for arguments in (
        [], ["x.zip"], [archive, "--only", "x"], [archive, "--root", "none"], [archive, "--name", "a@b"],
        [archive, "--metric", "fast"], [archive, "--tag", "fast"], [archive, "--fingerprint", archive],
    ):  # fmt: skip
        words = [home / word if word == "x.zip" else word for word in arguments]
        said = command("import", *words)
        assert said.code == 2 and said.err.startswith("error[usage]: "), arguments


def test_standard_input(home: Path, command: Command, archive: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(archive.read_bytes())))
    said = command("import", "-", "--name", "drafter")
    assert said.code == 0 and "as drafter" in said.out


def test_help_fits_and_has_examples(command: Command):
    said = command("import", "--help")
    assert said.code == 0 and "Examples:" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
