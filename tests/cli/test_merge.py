"""The command: options to the verb, its result in every mode, its exit codes, and what people see."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.models import Fact
from cachekeeper.testing import make_cache
from cachekeeper.testing.caches import write
from tests import samples
from tests.verbs.conftest import Machine, settle

from .conftest import Command


@pytest.fixture
def ranks(home: Path, command: Command) -> Path:
    """Snapshots `a` and `b`, with one entry that is not the same in both and one graph with two files."""
    for seed, name in enumerate("ab"):
        cache = make_cache(home / name, seed=seed, kernels=2, graphs=2)
        write(cache / "dynamo" / "abc" / "entry", name.encode())
        write(cache / "fxgraph" / "ab" / "fabc" / f"g{name}", name.encode())
        settle(cache)
        assert command("snapshot", name, "--cache-dir", cache, "-q").code == 0
    return home


def of(reference: str) -> str:
    return cachekeeper.show(reference).snapshot.id


def test_in_every_mode(ranks: Path, command: Command):
    words = command("merge", "a", "b", "--name", "both", "--prefer", "first")
    assert words.code == 0 and words.err == ""
    one, other = of("a")[:8], of("b")[:8]
    assert words.out.splitlines()[:9] == [
        f"KIND         ONLY {one}  ONLY {other}  SHARED  VARIANTS  CONFLICTS",
        "fxgraph                  2              2       0         0          1",
        "aotautograd              2              2       0         0          0",
        "triton                   2              2       0         0          0",
        "module                   2              2       0         0          0",
        "native                   2              2       0         0          0",
        "autotune                 3              3       0         0          0",
        "precompile               0              0       0         0          1",
        "Conflicts settled (2):",
    ]
    assert f"  fxgraph  fxgraph/ab/fabc   from {one}\n" in words.out
    assert (
        f"ok  Saved {of('both')[:8]} as both: 5 graphs, 4 Triton kernels, 4 native modules, 6 autotune results\n"
        in (words.out)
    )
    assert words.out.endswith("hint: restore it with `cachekeeper restore both --verify`\n")
    quiet = command("merge", "a", "b", "--prefer", "b", "-q")
    assert quiet.code == 0 and quiet.err == "" and len(quiet.out) == 65
    document = command("merge", "a", "b", "--prefer", "newest", "--json").json
    assert document["schema"] == "cachekeeper.merge/1" and document["ok"] is True
    assert document["snapshot"]["header"]["origin"] == f"merge of {one}, {other}"
    assert document["shares"]["fxgraph"] == {"only": [2, 2], "shared": 0, "variants": 0, "conflicts": 1}
    assert document["conflicts"][1] == {
        "kind": "precompile",
        "entry": "dynamo/abc",
        "versions": [{"snapshots": [of(name)], "files": ["dynamo/abc/entry"]} for name in "ab"],
        "taken": of("b"),
    }


def test_conflicts(ranks: Path, command: Command):
    said = command("merge", "a", "b", "--name", "both")
    assert said.code == 3 and said.out == ""
    assert said.err.splitlines() == [
        "error[check-failed]: 2 entries have several versions in these snapshots, so nothing was saved",
        "  1 fxgraph, 1 precompile",
        f"  fxgraph  fxgraph/ab/fabc   {of('a')[:8]}: ga   {of('b')[:8]}: gb",
        f"  precompile  dynamo/abc   {of('a')[:8]}: entry   {of('b')[:8]}: entry",
        "hint: to take the first one's version of each, whole: `cachekeeper merge a b --name both --prefer first`; "
        "add --variants if they ran different shapes, so that each keeps its graphs",
    ]
    assert command("merge", "a", "b", "--json").error["code"] == "check-failed"
    command_of_the_hint = said.err.rpartition("`cachekeeper ")[2].partition("`")[0]
    assert command(*command_of_the_hint.split()).code == 0


def test_a_dry_run(ranks: Path, command: Command):
    said = command("merge", "a", "b", "--name", "both", "--dry-run")
    assert said.code == 3 and said.err == "" and "Conflicts (2):\n" in said.out
    assert "nothing would be saved\nhint: say whose version to take with --prefer; " in said.out
    fine = command("merge", "a", "b", "--dry-run", "--variants", "--prefer", "a")
    assert fine.code == 0 and fine.out.endswith("ok  nothing is in the way of this merge\n")
    assert command("merge", "a", "b", "--dry-run", "--json").json["snapshot"] is None
    assert command("ls", "both").code == 5


def test_options_reach_the_verb(ranks: Path, command: Command):
    options = ["--variants", "--prefer", "b", "-m", "why not", "--name", "both"]
    document = command("merge", "a", "b", *options, "--json").json
    assert document["snapshot"]["header"]["message"] == "why not" and document["name_moved"] is True
    assert document["shares"]["fxgraph"]["variants"] == 1 and len(document["conflicts"]) == 1
    assert command("merge", "a", "b", "--prefer", "b", "--read-only").err.startswith("error[read-only]")


def test_a_name_that_stays(ranks: Path, command: Command):
    make_cache(ranks / "big", seed=9, kernels=30, graphs=30)
    assert command("snapshot", "big", "--cache-dir", settle(ranks / "big"), "-q").code == 0
    said = command("merge", "a", "b", "--prefer", "a", "--name", "big")
    assert said.code == 3 and "warning: big was not moved" in said.err and "merge again with --force" in said.err
    assert command("merge", "a", "b", "--prefer", "a", "--name", "big", "--force").code == 0


def test_environments(ranks: Path, command: Command, machine: Machine):
    machine.fingerprint = samples.fingerprint(torch="2.12.0", cuda=Fact("12.8"))
    assert command("snapshot", "c", "--cache-dir", settle(make_cache(ranks / "c", seed=7)), "-q").code == 0
    said = command("merge", "a", "c")
    one, other = of("a")[:8], of("c")[:8]
    assert said.code == 4
    head, *facts, hint = said.err.splitlines()
    assert (
        head
        == f"error[environment-mismatch]: snapshots {one} and {other} differ in their environments, which never mix"
    )
    assert sorted(facts) == [
        f"  cuda  13.0 in {one}   12.8 in {other}",
        f"  torch  2.11.0 in {one}   2.12.0 in {other}",
    ]
    assert hint.startswith("hint: ")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a"],
        ["a", "a"],
        ["a", "b", "--prefer", "c"],
        ["a", "b", "--name", "latest"],
        ["a", "b", "--allow-mismatch"],
    ],
)
def test_usage(ranks: Path, command: Command, arguments: list[str]):
    assert command("snapshot", "c", "--cache-dir", ranks / "inductor", "-q").code == 0
    before = set((ranks / "store").rglob("*"))
    said = command("merge", *arguments)
    assert said.code == 2 and said.out == "" and said.err.startswith("error[usage]: ")
    assert set((ranks / "store").rglob("*")) == before


def test_not_found(ranks: Path, command: Command):
    said = command("merge", "a", "nothing")
    assert said.code == 5 and said.err.startswith("error[not-found]: no snapshot 'nothing'")
    assert command("merge", "a", "b", "--store", ranks / "none").code == 5
