"""The command: what it says and answers in every mode, and its exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cachekeeper import megacache
from cachekeeper.cli import export as exporting
from cachekeeper.verbs.export import FORMATS
from tests.verbs.conftest import unplaced

from .conftest import Command

ROOT = Path(__file__).parents[2]
NOTE = "note: names and signatures stay behind: `cachekeeper copy` takes all along, to another store\n"


def plain(said: str) -> str:
    """Without ids, and without lengths, which depend on zstd's version."""
    return re.sub(r"\b[0-9a-f]{8}\b", "7c1e04ab", re.sub(r"[\d.]+ (KiB|B)\b", "9.9 KiB", said))


def test_an_archive_in_words(home: Path, command: Command, saved: str):
    said = command("export", "drafter", home / "x.tar.zst")
    assert (said.code, said.err) == (0, "")
    assert plain(said.out) == (
        "Snapshot  7c1e04ab   27 files   9.9 KiB, every SHA-256 matches\n"
        "Format    tar.zst   9.9 KiB\n"
        f"For       {home}/inductor   (2 files name it)\n"
        f"{NOTE}"
        f"ok  Exported 7c1e04ab to {home}/x.tar.zst\n"
        "hint: for another directory use --for-dir, or `cachekeeper import` there\n"
    )


def test_a_directory_in_words(home: Path, command: Command, saved: str):
    said = command("export", "drafter", home / "out")
    assert (said.code, said.err) == (0, "")
    assert plain(said.out) == (
        "Snapshot  7c1e04ab   27 files   9.9 KiB, every SHA-256 matches\n"
        "Format    directory\n"
        f"For       {home}/out   (2 files name it)\n"
        f"{NOTE}"
        f"ok  Exported 7c1e04ab to {home}/out\n"
    )
    assert unplaced(home / "out") == unplaced(home / "inductor")


def test_a_mega_cache_in_words(home: Path, command: Command, saved: str):
    said = command("export", "drafter", home / "x.mega")
    assert (said.code, said.err) == (0, "")
    assert plain(said.out) == (
        "Snapshot  7c1e04ab   6 files   9.9 KiB, every SHA-256 matches\n"
        "Format    mega-cache   9.9 KiB\n"
        "          2 aot_autograd, 2 inductor, 2 autotune\n"
        "Lacks     1 max-autotune timing\n"
        "          2 C++ libraries\n"
        "          2 Triton kernels, but for those in the bundles of graphs\n"
        "note: it cannot hold where it was made: H200 sm_90 cu130 2.11.0; `import --fingerprint FILE` says so\n"
        f"{NOTE}"
        f"ok  Exported 7c1e04ab to {home}/x.mega\n"
    )


def test_json_and_quiet(home: Path, command: Command, saved: str):
    document = command("export", "drafter", home / "x.mega", "--json").json
    assert document["schema"] == "cachekeeper.export/1" and document["snapshot"]["id"] == saved
    assert (document["format"], document["destination"]) == ("mega-cache", f"{home}/x.mega")
    assert document["artifacts"] == {"inductor": 2, "aot_autograd": 2, "autotune": 2} and len(document["lacks"]) == 3
    assert document["size"] == (home / "x.mega").stat().st_size
    assert command("export", "drafter", home / "x.tar", "-q") == (0, saved + "\n", "")


def test_for_dir_and_format(home: Path, command: Command, saved: str):
    said = command("export", "drafter", home / "x", "--format", "tar", "--for-dir", "/some/where")
    assert said.code == 0 and "For       /some/where   (2 files name it)" in said.out
    assert b'"/some/where/triton/0/' in (home / "x").read_bytes()


def test_standard_output_holds_nothing_else(home: Path, saved: str):
    command = [sys.executable, "-m", "cachekeeper", "export", "drafter", "-", "--format", "mega-cache"]
    for flags in ([], ["--json"], ["--quiet"]):
        said = subprocess.run([*command, *flags], cwd=ROOT, capture_output=True, check=True)
        assert megacache.parse(said.stdout).types == {"aot_autograd": 2, "autotune": 2, "inductor": 2}
        assert saved[:8].encode() in said.stderr


def test_a_reader_that_goes_away_is_no_traceback(home: Path, saved: str):
    command = (
        f"{sys.executable} -m cachekeeper export drafter - --format tar | head -c 10 | wc -c; exit ${{PIPESTATUS[0]}}"
    )
    said = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.stdout == "10\n" and "Traceback" not in said.stderr


def test_damage_is_exit_3_and_leaves_nothing(home: Path, command: Command, saved: str):
    [pack] = (home / "store/packs").iterdir()
    pack.chmod(0o644)
    pack.write_bytes(pack.read_bytes()[:500])
    for name in ("x.tar.zst", "x.mega", "x"):
        said = command("export", "drafter", home / name)
        assert said.code == 3 and said.err.startswith("error[damaged-store]: ")
    assert sorted(path.name for path in home.iterdir()) == ["inductor", "store"]


def test_nothing_is_exit_5(home: Path, command: Command, saved: str):
    said = command("export", "draftr", home / "x")
    assert said.code == 5 and "did you mean `drafter`?" in said.err
    assert command("export", "drafter", home / "x", "--store", home / "none").code == 5


def test_usage_is_exit_2(home: Path, command: Command, saved: str):
    (home / "there.tar").write_text("mine")
    for arguments in (
        [], ["drafter"], ["drafter", home / "there.tar"], ["drafter", home / "x.zip"], ["drafter", home / "inductor"],
        ["drafter", home / "x", "--format", "zip"], ["drafter", "-", "--format", "directory"], ["drafter", ""],
        ["drafter", home / "none/x"],
    ):  # fmt: skip
        said = command("export", *arguments)
        assert said.code == 2 and said.err.startswith("error[usage]: "), arguments
    assert (home / "there.tar").read_text() == "mine"


@pytest.mark.parametrize("name", ["x.tar", "x"])
def test_a_directory_that_may_not_be_written_is_exit_8(
    name: str, home: Path, command: Command, saved: str, monkeypatch
):
    def denied(*arguments: object, **others: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", denied)
    said = command("export", "drafter", home / name)
    assert said.code == 8 and said.err.startswith(f"error[local-disk]: cannot write {home}/{name}\n")


def test_the_formats_of_the_option_are_those_of_the_verb():
    assert exporting._FORMATS == FORMATS


def test_help_fits_and_has_examples(command: Command):
    said = command("export", "--help")
    assert said.code == 0 and "Examples:" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
