"""The command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import runs
from cachekeeper.models import Graph
from cachekeeper.telemetry import Compiled, Fallback, Frame, Log, Process, encode
from tests import samples
from tests.verbs.conftest import Machine

from .conftest import Command


def test_in_every_mode(home: Path, command: Command, saved: str):
    words = command("show", "drafter")
    assert words.code == 0 and words.err == "" and words.out.startswith(f"snapshot     {saved}\n")
    assert command("show", "drafter", "-q").out == saved + "\n"
    document = command("show", "drafter", "--json").json
    assert document["schema"] == "cachekeeper.show/1" and document["fits"] is True
    assert document["snapshot"]["header"]["fingerprint"]["must"]["torch"] == {"value": "2.11.0", "unknown": ""}


def test_why_not_here(home: Path, command: Command, saved: str, machine: Machine):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    out = command("show", "drafter").out
    assert "here?        no: torch\n" in out
    assert "  torch  2.11.0 -> here 2.12.0   (torch would ignore every entry)\n" in out


def test_the_run_before_it(home: Path, command: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(home / "runs"))
    run = runs.begin(("python", "train.py", "--hf-token", "hf_abc", "API_KEY=xyz"))
    saved = cachekeeper.snapshot("quiet", run=run).snapshot.id
    assert "run          python train.py --hf-token '***' 'API_KEY=***': told nothing" in command("show", saved).out
    graphs = tuple(Compiled(1.0, "", Graph("fx", state, state, components=("a",))) for state in ("hit", "miss"))
    log = Log(Process(1, "host", 1.0), graphs, (Frame(9.0, "", "f", 2.5),), (Fallback(1.0, "", "f", "why"),))
    run.directory.joinpath("a.jsonl").write_bytes(encode(log))
    saved = cachekeeper.snapshot("told", run=run).snapshot.id
    out = command("show", saved).out
    assert "'API_KEY=***': 1 hit, 1 missed, 0 bypassed, 2.5 s compiling, 1 fallback\n" in out
    assert "\ntelemetry    " in out and " of its graphs\n" in out
    header = command("show", saved, "--json").json["snapshot"]["header"]
    assert header["run"]["misses"] == 1 and header["telemetry"]["raw"] > 100


def test_allowed_secrets_are_told_and_not_shown(home: Path, command: Command, monkeypatch: pytest.MonkeyPatch):
    secret = "0123456789abcdef0123456789abcdef01234567"
    monkeypatch.setenv("WANDB_API_KEY", secret)
    module = next((home / "inductor").glob("??/*.py"))
    module.write_text(f"key = '{secret}'\n")
    saved = command("snapshot", "-q", "--allow-secrets").out.strip()
    said = command("show", saved)
    path = module.relative_to(home / "inductor")
    assert f"warning: looks like a secret: {path}  the value of WANDB_API_KEY\n" in said.err
    assert secret not in said.out + said.err
    left = command("export", saved, home / "x.tar").out
    assert "the snapshot holds 1 file with what looks like secrets" in left


def test_tags(home: Path, command: Command):
    assert "\ntags " not in command("show", command("snapshot", "-q").out.strip()).out
    saved = command("snapshot", "x", "-q", "--tag", "dataset=pile-v2", "--tag", "batch=8").out.strip()
    assert "\ntags         batch=8  dataset=pile-v2\n" in command("show", saved).out
    assert command("show", saved, "--json").json["snapshot"]["header"]["tags"] == {"dataset": "pile-v2", "batch": "8"}
    rows = {row["id"]: row["tags"] for row in command("ls", "--json").json["snapshots"]}
    assert rows.pop(saved) == {"batch": "8", "dataset": "pile-v2"} and list(rows.values()) == [{}]


def test_signatures(home: Path, command: Command, saved: str):
    assert "\nsignature " not in command("show", "drafter").out
    assert command("show", "drafter", "--json").json["signatures"] == []
    key = cachekeeper.keygen(home / "key")
    cachekeeper.sign("drafter", key=key.file)
    places = home / "store" / "signatures" / saved
    (places / ("00" * 32)).write_bytes(b"\x1b[2J")
    (places / ("ff" * 32)).write_bytes(places.joinpath(key.key).read_bytes())
    out = command("show", "drafter").out
    line = rf"^signature    key {key.key[:16]}   \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ by \S+@\S+$"
    assert re.search(line, out, re.MULTILINE)
    damage = "its bytes are not those of a signature by this key"
    assert f"\nsignature    key {'0' * 16}   {damage}\n" in out and f"\nsignature    key {'f' * 16}   {damage}\n" in out
    told = {each["key"]: each["damage"] for each in command("show", "drafter", "--json").json["signatures"]}
    assert told == {key.key: "", "00" * 32: damage, "ff" * 32: damage}


def test_exit_codes(home: Path, command: Command, saved: str):
    assert command("show", "draftr").code == 5
    assert command("show").code == 2
    (home / "store" / "format.json").chmod(0o644)
    (home / "store" / "format.json").write_text('{"format": 2}')
    said = command("show", "drafter")
    assert said.code == 6 and "pip install -U cachekeeper" in said.err
