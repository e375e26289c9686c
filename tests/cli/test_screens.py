"""What people see, word for word, at 80 columns without colour.

UPDATE_SCREENS=1 writes tests/golden/screens anew: read the difference before committing it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import environment
from cachekeeper.cli.group import COMMANDS
from cachekeeper.testing import make_triton_entry
from tests import samples
from tests.verbs.conftest import Machine

from .conftest import Command, Said

SCREENS = Path(__file__).parents[1] / "golden" / "screens"
UPDATE = os.environ.get("UPDATE_SCREENS")
# Every id is another one each time; on a screen they become these, in the order in which they came to be.
IDS = ("7c1e04ab", "51d9aa30", "e2b6f119")


class Screen:
    """Runs commands and gathers what they say, without what differs from run to run."""

    def __init__(self, home: Path, command: Command) -> None:
        self._home = home
        self._command = command
        self._text = ""

    def show(self, *arguments: str) -> Said:
        said = self._command(*(argument.replace("~", str(self._home)) for argument in arguments))
        self._text += f"$ cachekeeper {' '.join(arguments)}\n{said.out}{said.err}[exit {said.code}]\n\n"
        return said

    def text(self) -> str:
        text = self._text.replace(str(self._home), "~").replace(str(self._home.as_uri()[7:]), "~")
        known = sorted((self._home / "store").glob("snapshots/*"), key=lambda path: path.stat().st_mtime_ns)
        for path, short in zip(known, IDS, strict=False):
            text = text.replace(path.name[:64], short + "0" * 56).replace(path.name[:8], short)
        for number, path in enumerate(sorted((self._home / "store").glob("packs/*"))):
            text = text.replace(path.name[:8], f"{number:08x}")
        text = re.sub(r"\d\.\d s\b", "0.5 s", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-01-31T08:15:00Z", text)
        text = re.sub(r"\d{8}T\d{6}Z-[0-9a-f]{6}", "20260131T081500Z-0a1b2c", text)
        # Live group files hold this directory's path, and a pack's length depends on zstd's version.
        text = re.sub(r"(cache directory   \d+ files   )[\d.]+ KiB", r"\g<1>9.9 KiB", text)
        text = re.sub(r"(~/inductor  )\d+ entries", r"\g<1>9 entries", text)
        text = re.sub(r"(pack 0+  )[\d,]+ bytes instead of [\d,]+", r"\g<1>9 bytes instead of 10", text)
        return re.sub(r"\d+(\.\d)? (KiB|B)(?= written| in the store| +\d+  H200)", r"9.9 KiB", text)


@pytest.fixture
def screen(home: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Screen:
    # Errors name caches of the machine's own temporary directory.
    monkeypatch.setenv("TMPDIR", str(home / "tmp"))
    (home / "tmp").mkdir()
    return Screen(home, command)


def check(name: str, text: str) -> None:
    path = SCREENS / f"{name}.txt"
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def of(screen: Screen, *commands: str) -> None:
    for line in commands:
        screen.show(*line.split())


def first(home: Path, pattern: str) -> Path:
    return min((home / "inductor").glob(pattern))


def snapshot(screen: Screen, home: Path, machine: Machine) -> None:
    of(screen, "snapshot drafter --metric tok_s=21500", "snapshot drafter", "snapshot drafter --quiet")


def snapshot_refused(screen: Screen, home: Path, machine: Machine) -> None:
    first(home, "triton/0/*/*.cubin").write_bytes(b"")
    first(home, "??/*.best_config").write_bytes(b'{"num_warps": 4}{"num_warps": 8}')
    of(screen, "snapshot drafter", "snapshot drafter --allow-damaged", "snapshot --cache-dir ~/none")


def snapshot_smaller(screen: Screen, home: Path, machine: Machine) -> None:
    screen.show("snapshot", "drafter", "--quiet")
    for place in ("fxgraph", "aotautograd", "triton"):
        shutil.rmtree(home / "inductor" / place)
    first(home, "??/*.best_config").unlink()
    of(screen, "snapshot drafter")


def restore(screen: Screen, home: Path, machine: Machine) -> None:
    screen.show("snapshot", "drafter", "--quiet")
    of(screen, "restore drafter --cache-dir ~/new --dry-run", "restore drafter --cache-dir ~/new --verify")
    of(screen, "restore drafter --cache-dir ~/new --export")


def restore_mends(screen: Screen, home: Path, machine: Machine) -> None:
    screen.show("snapshot", "drafter", "--quiet")
    first(home, "triton/0/*/*.cubin").write_bytes(b"")
    first(home, "??/*.py").write_bytes(b"other\n")
    first(home, "fxgraph/*/*/*").unlink()
    of(screen, "restore drafter", "restore drafter")


def restore_refused(screen: Screen, home: Path, machine: Machine) -> None:
    of(screen, "restore drafter", "restore drafter --missing-ok")
    screen.show("snapshot", "drafter", "--quiet")
    of(screen, "restore draftr")
    machine.fingerprint = samples.fingerprint(torch="2.12.0", environment=samples.Fact({"TRITON_DEBUG": "1"}))
    of(screen, "restore drafter", "restore latest", "restore drafter --allow-mismatch --cache-dir ~/new")
    screen.show("snapshot", "other", "--quiet")
    of(screen, "restore drafter")


def verify(screen: Screen, home: Path, machine: Machine) -> None:
    screen.show("snapshot", "drafter", "--quiet")
    of(screen, "verify drafter", "verify drafter --live ~/inductor", "verify --dir ~/inductor")


def verify_damage(screen: Screen, home: Path, machine: Machine) -> None:
    screen.show("snapshot", "drafter", "--quiet")
    first(home, "triton/0/*/*.cubin").write_bytes(b"")
    first(home, "??/*.py").unlink()
    make_triton_entry(home / "inductor" / "triton" / "0", seed=77)
    of(screen, "verify drafter --live ~/inductor", "verify --dir ~/inductor")
    [pack] = (home / "store").glob("packs/*")
    pack.chmod(0o644)
    pack.write_bytes(pack.read_bytes()[:-1])
    of(screen, "verify drafter")


def ls(screen: Screen, home: Path, machine: Machine) -> None:
    of(screen, "ls")
    screen.show("snapshot", "drafter", "--quiet")
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    screen.show("snapshot", "drafter", "--quiet", "--message", "second")
    screen.show("snapshot", "--quiet", "--message", "unnamed")
    of(screen, "ls", "ls drafter", "ls --quiet", "ls nothing")


def show(screen: Screen, home: Path, machine: Machine) -> None:
    screen.show(
        "snapshot", "drafter", "--quiet", "--message", "warm", "--metric", "tok_s=21500", "--metric", "loss=2.5"
    )
    of(screen, "show drafter")
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    of(screen, "show drafter")


def proven(screen: Screen, home: Path, machine: Machine) -> None:
    cachekeeper.snapshot(
        "drafter", cache_dir=home / "inductor", store=home / "store", proof=samples.proof(), wait=0, message="proven"
    )
    of(screen, "ls", "show drafter", "restore drafter --require-proof --cache-dir ~/new")
    screen.show("snapshot", "other", "--quiet")
    of(screen, "restore other --require-proof", "restore latest --require-proof --cache-dir ~/new --quiet")


def fingerprint(screen: Screen, home: Path, machine: Machine) -> None:
    of(screen, "fingerprint")


def usage(screen: Screen, home: Path, machine: Machine) -> None:
    of(
        screen,
        "snapsho",
        "ls --jsn",
        "verify --all drafter",
        "snapshot --metric fast",
        "snapshot latest",
        "restore --only x",
    )
    of(screen, "ls --store ftp://host/x")


def help(screen: Screen, home: Path, machine: Machine) -> None:
    of(screen, "--help", *(f"{name} --help" for name in COMMANDS if name != "doctor"))


SCENES: tuple[Callable[[Screen, Path, Machine], None], ...] = (
    snapshot,
    snapshot_refused,
    snapshot_smaller,
    restore,
    restore_mends,
    restore_refused,
    verify,
    verify_damage,
    ls,
    show,
    proven,
    fingerprint,
    usage,
    help,
)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_screen(
    scene: Callable[[Screen, Path, Machine], None],
    screen: Screen,
    home: Path,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(environment, "fingerprint", lambda **_: machine.fingerprint)
    scene(screen, home, machine)
    check(scene.__name__, screen.text())


def test_every_screen_has_a_scene():
    screens = {path.stem for path in SCREENS.glob("*.txt") if not path.stem.startswith("diff")}  # see test_diff.py
    assert screens == {scene.__name__ for scene in SCENES}
