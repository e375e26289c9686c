"""The command: options to the verb, its result in every mode, what a shell makes of --export, its exit codes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.testing import make_cache
from tests import samples
from tests.verbs.conftest import Machine, unplaced

from .conftest import Command


def test_in_every_mode(home: Path, command: Command, saved: str):
    words = command("restore", "drafter", "--cache-dir", home / "a")
    assert words.code == 0 and words.err == ""
    assert command("restore", "drafter", "--cache-dir", home / "b", "-q") == (0, saved + "\n", "")
    document = command("restore", "drafter", "--cache-dir", home / "c", "--json").json
    assert document["schema"] == "cachekeeper.restore/1"
    assert (document["snapshot"]["id"], document["cache_dir"]) == (saved, str(home / "c"))
    assert document["environment"]["TRITON_CACHE_DIR"] == f"{home}/c/triton/0"
    assert (document["new"], document["same"], document["replaced"]) == (27, 0, 0)
    assert unplaced(home / "a") == unplaced(home / "b") == unplaced(home / "c") == unplaced(home / "inductor")


def test_without_arguments_it_is_the_latest_into_torchs_own_directory(home: Path, command: Command, saved: str):
    shutil.rmtree(home / "inductor")
    assert command("restore", "-q").out == saved + "\n"
    assert (home / "inductor" / "triton").is_dir()


def test_options_reach_the_verb(home: Path, command: Command, saved: str):
    out = home / "out"
    document = command(
        "restore", "--cache-dir", out, "--dry-run", "--only", "triton", "--only", "module", "--json"
    ).json
    assert document["dry_run"] is True and document["new"] == 16 and not out.exists()
    make_cache(out, seed=5, kernels=1, graphs=0)
    next(out.rglob("*.cubin")).write_bytes(b"")
    document = command("restore", "--cache-dir", out, "--repair", "--verify", "--json").json
    assert document["moved_aside"] == 1 and document["verified"] == 27
    document = command("restore", "--cache-dir", out, "--exact", "--json").json
    assert document["moved_aside"] == 1


@pytest.mark.parametrize(
    "name", ["plain", "with space", "it's", 'a"b', "$HOME `id` $(id)", "größe", "-x", "\udcff", "*"]
)
def test_export_sets_what_it_says_in_a_shell(home: Path, saved: str, name: str):
    restore = f"{sys.executable} -m cachekeeper restore drafter --allow-mismatch --export --quiet"
    script = (
        f'eval "$({restore} --cache-dir "$1")"\nprintf "%s\\n%s\\n" "$TORCHINDUCTOR_CACHE_DIR" "$TRITON_CACHE_DIR"\n'
    )
    target = os.fsencode(home / name)
    environ = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    result = subprocess.run(["sh", "-c", script, "sh", target], capture_output=True, env=environ, check=False)
    assert result.stdout == target + b"\n" + target + b"/triton/0\n", result.stderr
    assert os.path.isdir(target)


def test_export_has_words_on_standard_error_alone(home: Path, command: Command, saved: str):
    said = command("restore", "--export")
    assert all(line.startswith("export ") for line in said.out.splitlines()) and said.out.count("\n") == 2
    assert "Restored to" in said.err
    assert '"schema": "cachekeeper.restore/1"' in command("restore", "--export", "--json").err


def test_a_dry_run_of_exact_lists_what_would_move(home: Path, command: Command, saved: str):
    for number in range(22):
        (home / "inductor" / "zz").mkdir(exist_ok=True)
        (home / "inductor" / "zz" / f"m{number:02}.py").write_bytes(b"# mine")
    said = command("restore", "--exact", "--dry-run").out
    assert "\nWould move away  22 files or kernels that the snapshot does not have\n  zz/m00.py\n" in said
    assert "\n  zz/m19.py\n  and 2 more; --json lists all\n" in said and "zz/m20.py" not in said
    assert len(command("restore", "--exact", "--dry-run", "--json").json["extras"]) == 22
    said = command("restore", "--exact").out
    assert "\nMoved away   22 files or kernels that the snapshot does not have\nPut aside    " in said


def test_missing_ok(home: Path, command: Command):
    said = command("restore", "drafter", "--missing-ok", "--export")
    assert said.code == 0 and said.err.startswith("warning: nothing restored: no snapshots in")
    # The cold job fills the directory that the next snapshot takes.
    assert said.out == (
        f"export TORCHINDUCTOR_CACHE_DIR={home}/inductor\nexport TRITON_CACHE_DIR={home}/inductor/triton/shared\n"
    )
    assert command("restore", "drafter", "--missing-ok", "--json").json["snapshot"] is None
    assert command("restore", "drafter", "--missing-ok", "--quiet").out == ""


@pytest.mark.parametrize("arguments", [["--only", "cubins"], ["a", "b"], ["--exakt"]])
def test_usage(command: Command, arguments: list[str]):
    said = command("restore", *arguments)
    assert said.code == 2 and said.err.startswith("error[usage]: ")


def test_not_found_is_exit_5(home: Path, command: Command, saved: str):
    said = command("restore", "draftr")
    assert said.code == 5 and "hint: did you mean `drafter`?" in said.err
    assert command("restore", "draftr", "--json").error["code"] == "not-found"


def test_another_environment_is_exit_4(home: Path, command: Command, saved: str, machine: Machine):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    said = command("restore", "drafter")
    assert said.code == 4 and said.out == ""
    assert "  torch  2.11.0   here 2.12.0   (torch would ignore every entry)\n" in said.err
    assert command("restore", "drafter", "--json").error["code"] == "environment-mismatch"
    allowed = command("restore", "drafter", "--allow-mismatch")
    assert allowed.code == 0 and "does NOT match" in allowed.out and "warning: torch 2.11.0 -> 2.12.0" in allowed.err


def test_damage_in_the_store_is_exit_3(home: Path, command: Command, saved: str):
    for pack in (home / "store").glob("packs/*"):
        pack.unlink()
    shutil.rmtree(home / "inductor")
    said = command("restore", "drafter")
    assert said.code == 3 and said.err.startswith(f"error[damaged-store]: snapshot {saved[:8]} is damaged")
    said = command("restore", "drafter", "--allow-damaged")
    assert said.code == 3 and "entries left out, damaged in the store" in said.err and "\nok" not in said.out
    assert "NOT ok: nothing of it could be restored" in said.out
    exported = command("restore", "drafter", "--allow-damaged", "--export")
    assert exported.code == 3 and exported.out == ""


def test_latest_that_is_damaged_gives_way_with_a_warning(home: Path, command: Command, saved: str):
    packs = set((home / "store").glob("packs/*"))
    newer = command("snapshot", "other", "--full", "--wait", "0", "--quiet").out.strip()
    for pack in set((home / "store").glob("packs/*")) - packs:
        pack.unlink()
    shutil.rmtree(home / "inductor")
    said = command("restore")
    warning = f"warning: {newer[:8]} is the newest that fits, but damaged in the store: {saved[:8]} is taken instead"
    assert said.code == 0 and warning in " ".join(said.err.split())


def test_what_can_be_had_of_a_damaged_snapshot_is_ok(home: Path, command: Command, saved: str):
    packs = set((home / "store").glob("packs/*"))
    (home / "inductor" / "other").mkdir()
    (home / "inductor" / "other" / "file").write_bytes(b"mine")
    command("snapshot", "drafter", "--wait", "0")
    for pack in set((home / "store").glob("packs/*")) - packs:
        pack.unlink()
    shutil.rmtree(home / "inductor")
    said = command("restore", "drafter", "--allow-damaged")
    assert said.code == 0 and "1 entry left out, damaged in the store:" in said.err and "\nok" in said.out


def test_only_what_is_signed(home: Path, command: Command, saved: str, monkeypatch: pytest.MonkeyPatch):
    key = cachekeeper.keygen(home / "key")
    arguments = ("restore", "drafter", "--cache-dir", home / "a")
    required = (*arguments, "--require-signature", key.public_file)
    said = command(*required)
    assert said.code == 3 and said.out == "" and not (home / "a").exists()
    assert said.err.startswith(f"error[unsigned]: nobody has signed move 1 of drafter to snapshot {saved[:8]}\n")
    assert command(*required, "--json").error["code"] == "unsigned"
    assert command(*arguments, "--require-signature", home / "none", "--missing-ok").code == 2
    cachekeeper.sign("drafter", key=key.file)
    said = command(*required)
    assert said.code == 0 and f"\nSignature    good, by key {key.key[:16]}\n" in said.out
    assert command(*arguments, "--require-signature", key.public_key, "--json").json["signed_by"] == key.key
    assert command(*arguments, "--json").json["signed_by"] == ""
    monkeypatch.setenv("CACHEKEEPER_REQUIRE_SIGNATURE", str(key.public_file))
    assert command(*arguments, "--json").json["signed_by"] == key.key
    command("snapshot", "drafter", "-m", "2", "--sign", key.file)
    assert command(*arguments).code == 0
    (home / "store" / "names" / "drafter" / "00000002").unlink()
    said = command(*arguments)
    assert said.code == 3 and said.err.startswith("error[replayed]: drafter has gone back to what ")
    assert "`cachekeeper restore drafter --allow-older`" in said.err
    assert command(*arguments, "--allow-older").code == command(*arguments).code == 0


def test_a_directory_in_use_is_exit_7(home: Path, command: Command, saved: str):
    make_cache(home / "inductor", seed=5)
    kernel = str(next((home / "inductor").rglob("*.ptx")))
    code = f"import sys; f = open({kernel!r}); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        assert command("restore", "drafter", "--exact").code == 7
        process.kill()


def test_a_directory_that_cannot_be_made_is_exit_8(home: Path, command: Command, saved: str):
    (home / "file").write_text("")
    said = command("restore", "--cache-dir", home / "file" / "x")
    assert said.code == 8 and said.err.startswith("error[local-disk]: cannot make the cache directory")
