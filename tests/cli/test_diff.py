"""cachekeeper diff, as a person meets it: on real pairs, see tests/pairs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from .conftest import Command
from .test_screens import check

PAIRS = Path(__file__).parents[1] / "golden/pairs"
PARTS = ("work", "environment", "graphs", "kernels", "products", "coverage")


def screen(command: Command, *arguments: str) -> str:
    said = command(*arguments, "--store", PAIRS)
    assert said.err == ""
    text = f"$ cachekeeper {' '.join(arguments)}\n{said.out}[exit {said.code}]\n"
    return re.sub(r"[\d.,]+ \w+ old +", "9 days old  ", text)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("diff", ("diff", "default", "warps")),
        ("diff_tensor", ("diff", "tf32", "ieee")),
        ("diff_products", ("diff", "small-1", "small-2")),
        ("diff_lost", ("diff", "default", "infer", "--only", "coverage", "--only", "graphs")),
        ("diff_torch", ("diff", "cpu", "cpu-other", "--exit-code")),
        ("diff_work", ("diff", "tf32", "tuned-1", "--only", "work")),
        ("diff_kernel", ("diff", "default", "warps", "--kernel", "softcap")),
        ("diff_kernel_source", ("diff", "tf32", "ieee", "--kernel", "flex")),
    ],
)
def test_screens(command: Command, name: str, arguments: tuple[str, ...]):
    text = screen(command, *arguments)
    check(name, text)
    words = [
        line for line in text.splitlines()[1:] if len(line) > 80 and " " in line.strip() and "  " not in line.strip()
    ]
    assert name == "diff_kernel_source" or words == []  # only tables and single long names may be wider


@pytest.mark.parametrize("part", PARTS)
def test_each_part_alone(command: Command, part: str):
    said = command("diff", "default", "warps", "--only", part, "--store", PAIRS)
    others = [line for line in said.out.splitlines() if line.split(" ")[0] in PARTS]
    assert said.code == 0 and [line.split(" ")[0] for line in others] in ([part], [])


def test_json_is_one_object_with_everything(command: Command):
    found = command("diff", "default", "warps", "--store", PAIRS, "--json").json
    assert found["schema"] == "cachekeeper.diff/1" and found["differs"] is True
    assert found["suspects"][0]["words"] == "softcap_0 spills more registers to memory"
    (pair,) = found["kernels"]["changed"]
    assert (pair["a"]["binary"]["local_bytes"], pair["b"]["binary"]["local_bytes"]) == (0, 4144)
    assert len(json.dumps(found)) < 300_000


def test_exit_code_tells_a_difference(command: Command):
    assert command("diff", "default", "warps", "--store", PAIRS, "--exit-code").code == 3
    assert command("diff", "default", "default", "--store", PAIRS, "--exit-code").code == 0
    assert command("diff", "default", "warps", "--store", PAIRS, "--kernel", "gelu", "--exit-code").code == 0
    assert command("diff", "default", "warps", "--store", PAIRS).code == 0


def test_quiet_says_nothing(command: Command):
    said = command("diff", "default", "warps", "--store", PAIRS, "--quiet", "--exit-code")
    assert (said.code, said.out, said.err) == (3, "", "")


def test_a_page(command: Command, tmp_path: Path):
    page = tmp_path / "diff.html"
    said = command("diff", "default", "warps", "--store", PAIRS, "--html", page)
    assert said.code == 0 and said.out.endswith(f"ok  Wrote {page}\n") and "likely spills in\nsoftcap_0" in said.out
    assert "likely spills in softcap_0" in page.read_text()
    assert command("diff", "tf32", "ieee", "--store", PAIRS, "--html", page).code == 0  # its own may be written anew
    page.write_text("mine")
    assert command("diff", "default", "warps", "--store", PAIRS, "--html", page).code == 2
    assert page.read_text() == "mine"
    assert command("diff", "default", "warps", "--store", PAIRS, "--html", page, "--force").code == 0


def test_a_page_on_standard_output(command: Command):
    said = command("diff", "default", "warps", "--store", PAIRS, "--html", "-")
    assert said.out.startswith("<!--") and said.out.rstrip().endswith("</html>")
    assert command("diff", "default", "warps", "--store", PAIRS, "--html", "-", "--json").code == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_page_that_cannot_be_written(command: Command, tmp_path: Path):
    tmp_path.chmod(0o500)
    assert command("diff", "default", "warps", "--store", PAIRS, "--html", tmp_path / "diff.html").code == 8


def test_what_is_not_there(command: Command):
    assert command("diff", "default", "nothing", "--store", PAIRS).code == 5
    said = command("diff", "default", "warps", "--kernel", "softcup", "--store", PAIRS)
    assert said.code == 5 and "softcap_0" in said.err
    assert command("diff", "default", "warps", "--only", "nothing", "--store", PAIRS).code == 2
    assert command("diff", "--store", PAIRS).code == 2
