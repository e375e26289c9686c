"""Docs cannot lie: README.md and FORMAT.md against the code."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import click
import pytest

import cachekeeper
from cachekeeper import manifest, packs
from cachekeeper.cli.group import COMMANDS, cli
from cachekeeper.config import SETTINGS
from cachekeeper.errors import CachekeeperError, StoreError
from cachekeeper.inductor import KINDS
from cachekeeper.manifest import checking, encode, paths
from cachekeeper.repository import open_repository
from cachekeeper.stores import MemoryStore
from cachekeeper.testing import make_cache
from cachekeeper.variables import OF_A_RUN
from cachekeeper.verbs.run import NOT_STARTED
from tests import samples

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
FORMAT = (ROOT / "cachekeeper" / "FORMAT.md").read_text()
CONTEXT = cli.make_context("cachekeeper", ["version"])


def blocks(text: str) -> list[str]:
    """The fenced blocks."""
    return re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def command_lines() -> list[str]:
    """Every `cachekeeper ...` of the README: lines of blocks, inside `$(...)` too, and in running text."""
    found = []
    for block in blocks(README):
        found += re.findall(r"(?:^|\$\()(cachekeeper [a-z][^\n)#]*)", block, re.MULTILINE)
    found += re.findall(
        r"`(?:eval \"\$\()?(cachekeeper [a-z][^`)]*)", re.sub(r"^```.*?^```", "", README, flags=re.S | re.M)
    )
    return list(dict.fromkeys(line.strip().rstrip('"') for line in found))


def parse(line: str) -> None:
    words = shlex.split(line)
    command = cli.get_command(CONTEXT, words[1])
    if command is None:
        raise click.UsageError(f"no command {words[1]!r}")
    command.make_context(words[1], words[2:], parent=CONTEXT)


def test_there_are_command_lines():
    lines = command_lines()
    assert len(lines) >= 8
    assert any("--export" in line for line in lines)
    assert {shlex.split(line)[1] for line in lines} >= {"snapshot", "restore", "verify", "ls", "show", "doctor"}


@pytest.mark.parametrize("line", command_lines())
def test_every_command_line_of_the_readme_parses(line: str):
    parse(line)


@pytest.mark.parametrize("line", ["cachekeeper snapsho x", "cachekeeper ls --nothing", "cachekeeper show"])
def test_a_wrong_command_line_would_be_noticed(line: str):
    with pytest.raises(click.UsageError):
        parse(line)


def table(text: str, heading: str) -> list[list[str]]:
    """The rows of the first table after a heading."""
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_exit_codes_are_those_of_the_errors():
    documented = {int(code) for row in table(README, "Exit codes") for code in row[0].split(", ")}
    kinds = [CachekeeperError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert documented == {kind.exit_code for kind in kinds} | {0, 130, 143} | {NOT_STARTED, 126, 127}


def test_the_codes_of_a_stores_errors_are_those_of_the_readme():
    [listed] = re.findall(r"a program can tell apart\s+`([a-z\s-]+)`", README)
    assert set(listed.split()) == {kind.code for kind in StoreError.__subclasses__()} - {"store"}


def test_every_setting_is_in_the_readme_and_every_one_in_it_exists():
    rows = table(README, "Settings")
    assert {row[0].strip("`"): row[1].strip("`") for row in rows} == {
        f"CACHEKEEPER_{key.upper()}": key if setting.in_file else "none" for key, setting in SETTINGS.items()
    }
    everywhere = set(re.findall(r"(?<!_)CACHEKEEPER_[A-Z0-9_]+", README))
    assert everywhere == {f"CACHEKEEPER_{key.upper()}" for key in SETTINGS} | set(OF_A_RUN)


def test_every_variable_that_the_code_reads_is_in_the_readme():
    """As a setting, or as one that is not for people to set."""
    read = {
        name
        for path in (ROOT / "cachekeeper").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in re.findall(r"\b_?CACHEKEEPER_[A-Z0-9]+(?:_[A-Z0-9]+)*", node.value)
    }
    assert read >= {*OF_A_RUN, "_CACHEKEEPER_COMPLETE", "CACHEKEEPER_STORE", "CACHEKEEPER_RUNS"}
    assert read <= set(re.findall(r"_?CACHEKEEPER_[A-Z0-9_]+", README))
    [internal] = re.findall(r"^(`cachekeeper run` sets .*?)\n\n", README, re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"_?CACHEKEEPER_[A-Z_]+", internal)) == {*OF_A_RUN, "_CACHEKEEPER_COMPLETE"}


def test_what_does_not_run_here_is_said_near_the_top():
    assert "Windows and macOS are not supported" in README[: README.index("## Try it")]
    classifiers = re.findall(r'"(Operating System :: .*)"', (ROOT / "pyproject.toml").read_text())
    assert classifiers == ["Operating System :: POSIX :: Linux"]


def test_the_readme_can_be_read():
    code = False
    for number, line in enumerate(README.splitlines(), 1):
        code ^= line.startswith("```")
        assert len(line) <= 120 or line.startswith("|"), f"line {number} has {len(line)} characters"
    assert not code


def test_every_command_is_in_the_readme():
    [listed] = re.findall(r"^## Every command\n+```\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert {line.split()[1] for line in listed.splitlines()} == set(COMMANDS)


def test_links_into_the_readme_lead_to_a_heading():
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", README, flags=re.S | re.M), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= anchors


def test_settings_named_in_help_exist():
    for name in COMMANDS:
        command = cli.get_command(CONTEXT, name)
        assert command is not None
        for variable in re.findall(r"CACHEKEEPER_[A-Z0-9_]+", command.get_help(click.Context(command, parent=CONTEXT))):
            assert variable.removeprefix("CACHEKEEPER_").lower() in SETTINGS


@pytest.mark.parametrize("text", [README, FORMAT], ids=["README", "FORMAT"])
def test_kinds(text: str):
    listed = re.findall(r"`(fxgraph [a-z ]+)`", text)
    assert listed == [" ".join(KINDS)]


def test_options_named_in_the_readme_exist():
    known = {option for name in COMMANDS for parameter in _params(name) for option in parameter.opts}
    ours = re.sub(r"`(?:pip|make|python)[^`]*`", "", README)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours)) <= known | {"--help", "--version"}


def _params(name: str) -> list[click.Parameter]:
    command = cli.get_command(CONTEXT, name)
    assert command is not None
    return command.params


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]+)\)", README + FORMAT):
        if "://" not in link:
            assert (ROOT / link).exists(), link


# FORMAT.md


def example() -> dict:
    [text] = [block for block in blocks(FORMAT) if block.startswith('{\n  "format"')]
    return json.loads(text)


def real(tmp_path: Path) -> dict:
    """The header of a real snapshot, as it is stored."""
    import zstandard

    store = MemoryStore()
    cache = make_cache(tmp_path / "c")
    saved = cachekeeper.snapshot("x", cache_dir=cache, store=store, wait=0, metrics={"tok_s": 1}, proof=samples.proof())
    data = store.read(f"snapshots/{saved.snapshot.id}.json.zst")
    return json.loads(zstandard.ZstdDecompressor().decompressobj().decompress(data))


def test_the_example_header_has_the_keys_of_a_real_one(tmp_path: Path):
    ours, theirs = example(), real(tmp_path)
    assert ours.keys() == theirs.keys()
    assert ours["fingerprint"].keys() == theirs["fingerprint"].keys()
    assert ours["tables"].keys() == theirs["tables"].keys()
    assert ours["counts"]["fxgraph"].keys() == theirs["counts"]["fxgraph"].keys()
    assert ours["proof"].keys() == theirs["proof"].keys()
    assert ours["proof"]["steps"][0].keys() == theirs["proof"]["steps"][0].keys()
    assert {key: type(value) for key, value in ours.items()} == {key: type(value) for key, value in theirs.items()}


def test_a_fact_is_as_described(tmp_path: Path):
    assert set(real(tmp_path)["fingerprint"]["must"]["torch"]) == {"value", "unknown"}
    assert '{"value": ..., "unknown": ' in FORMAT


def test_the_rows_of_the_tables_are_as_described():
    for name, kind in (
        ("files", manifest.FileRow),
        ("frames", manifest.FrameRow),
        ("entries", manifest.EntryRow),
    ):
        assert re.search(rf"^{name}\s+\[{', '.join(kind._fields)}\]", FORMAT, re.MULTILINE), name
    assert f"[{', '.join(packs.Frame._fields)}]" in FORMAT
    assert f"[{', '.join(packs.Content._fields)}]" in FORMAT


def test_the_limits_are_as_described():
    text = " ".join(FORMAT.split())
    assert f"longer than {paths._PATH_LIMIT:,} bytes" in text
    assert f"longer than {paths._PART_LIMIT} bytes" in text
    million = {1_000_000: "a million"}
    assert f"more than {million[checking._FILE_LIMIT]} files or {checking._BYTES_LIMIT >> 40} TiB" in text


def test_the_magic_is_as_described():
    assert packs.MAGIC.hex(" ") in FORMAT


def test_every_place_in_a_store_is_described(tmp_path: Path):
    store = MemoryStore()
    cachekeeper.snapshot("x", cache_dir=make_cache(tmp_path / "c"), store=store, wait=0)
    described = {line.split()[0].partition("/")[0] for line in blocks(FORMAT)[0].splitlines()}
    assert {key.partition("/")[0] for key, *_ in store.list("")} <= described


def test_a_move_is_as_described():
    store = MemoryStore()
    repository = open_repository(store)
    repository.move_name("x", samples.ID)
    document = json.loads(store.read("names/x/00000001"))
    [text] = re.findall(r"`(\{\"sha256\".*?\})`", FORMAT)
    assert json.loads(text).keys() == document.keys()


def test_the_id_is_what_it_says():
    import hashlib

    import zstandard

    snapshot, data = encode(samples.header(), samples.tables())
    header = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    assert hashlib.sha256(header).hexdigest() == snapshot.id
    assert "The id of a snapshot is the SHA-256 of the header's JSON" in FORMAT


def test_what_a_reader_does_with_keys_that_it_does_not_know_is_said():
    """tests/test_manifest.py holds it to that."""
    assert "passes over keys that it does not know" in FORMAT
