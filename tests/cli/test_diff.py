"""cachekeeper diff, as a person meets it: on real pairs, see tests/pairs."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cachekeeper.cli.diff import say
from cachekeeper.cli.one_kernel import say_kernels
from cachekeeper.diffing.models import Change, Kernels, Suspect
from cachekeeper.verbs.diff import DiffResult
from tests.pages.samples import difference

from .conftest import Command
from .test_screens import check

PAIRS = Path(__file__).parents[1] / "golden/pairs"
PARTS = ("work", "environment", "graphs", "kernels", "products", "coverage")


def screen(command: Command, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setenv("CACHEKEEPER_STORE", str(PAIRS))
    said = command(*arguments)
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
def test_screens(command: Command, monkeypatch: pytest.MonkeyPatch, name: str, arguments: tuple[str, ...]):
    text = screen(command, monkeypatch, *arguments)
    check(name, text)
    # Only tables, single long names, and commands to copy may be wider.
    wide = [line.strip() for line in text.splitlines()[1:] if len(line) > 80]
    words = [line for line in wide if " " in line and "  " not in line and not line.startswith("`cachekeeper ")]
    assert name in ("diff_kernel", "diff_kernel_source") or words == []


def test_a_kernel_that_is_the_same_is_shown_in_full(command: Command):
    said = command("diff", "default", "warps", "--kernel", "triton_per_fused_native_layer_norm_0", "--store", PAIRS)
    lines = said.out.splitlines()
    assert lines[3] == (
        "triton_per_fused_native_layer_norm_0 (persistent_reduction) on cuda:0: the same   (matched by module)"
    )
    told = {line[2:17].strip(): line[19:] for line in lines[4:30]}
    assert (told[""], told["registers"], told["cubin"]) == ("a and b", "63", "32,120 B")
    assert told["instructions"] == "426 in PTX"
    assert said.out.endswith("    tl.store(out_ptr0 + (x0), tmp9, None)\n")
    whole = command("diff", "default", "default", "--kernel", "softcap", "--store", PAIRS).out
    assert "softcap_0 (user_autotune) on cuda:0: the same" in whole and "registers        158" in whole
    assert "def softcap(source, target, cap, SIZE: tl.constexpr):" in whole


def test_of_several_kernels_the_sources_are_left_out(command: Command):
    out = command("diff", "default", "warps", "--kernel", "gelu", "--store", PAIRS).out
    assert out.count(": the same   (matched by module)") == 4 and "@triton.jit" not in out
    assert out.count(" lines, shown for one kernel alone") == 4


def test_kernels_that_are_the_same_as_json(command: Command):
    found = command("diff", "default", "warps", "--kernel", "gelu", "--store", PAIRS, "--json").json
    assert [(pair["a"]["name"], pair["matched"]) for pair in found["same"]] == [
        ("triton_poi_fused_gelu_gelu_backward_view_2", "module"),
        ("triton_poi_fused_gelu_view_3", "module"),
        ("triton_red_fused_gelu_gelu_backward_sum_view_3", "module"),
        ("triton_red_fused_gelu_gelu_backward_sum_view_4", "module"),
    ]
    assert found["same"][0]["a"] == found["same"][0]["b"] and found["kernels"]["same"] == 4
    found = command("diff", "small-1", "small-2", "--kernel", "triton", "--store", PAIRS, "--json").json
    assert (found["same"], len(found["kernels"]["changed"])) == ([], 3)


def test_one_that_both_sides_have_is_paired_within_its_device(command: Command):
    found = command("diff", "two", "two", "--kernel", "softcap", "--store", PAIRS, "--json").json
    assert [(pair["a"]["device"], pair["b"]["device"]) for pair in found["same"]] == [("cuda:0",) * 2, ("cuda:1",) * 2]


def test_some_parts_as_json(command: Command):
    found = command("diff", "default", "warps", "--only", "graphs", "--store", PAIRS, "--json").json
    assert set(found) == {"schema", "differs", "a", "b", "verdict", "work", "graphs", "notes"}
    found = command("diff", "default", "warps", "--only", "work", "--only", "coverage", "--store", PAIRS, "--json").json
    assert set(found) == {"schema", "differs", "a", "b", "verdict", "work", "metrics", "coverage", "notes"}


@pytest.mark.parametrize("other", [["--html", "page.html"], ["--kernel", "softcap"]])
def test_only_goes_with_neither_a_page_nor_a_kernel(
    command: Command, other: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    said = command("diff", "default", "warps", "--only", "graphs", *other, "--store", PAIRS)
    assert said.code == 2 and said.out == "" and "--only goes with neither" in said.err
    assert os.listdir(tmp_path) == []


def test_that_b_is_older_is_said(command: Command):
    said = command("diff", "warps", "default", "--only", "graphs", "--store", PAIRS).out.splitlines()
    assert said[2] == "note: b was saved 35 s before a: changes read from the newer to the older"
    assert "before a" not in command("diff", "default", "warps", "--store", PAIRS).out


class Lines:
    """What a person would see."""

    quiet = False

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str = "", colour: str = "", whole: bool = False) -> None:
        self.lines.append(text)

    hint = line


LONG = "triton_per_fused_" + "_".join(["native_layer_norm_backward"] * 4) + "_17"


def _long() -> DiffResult:
    found = difference()
    pair = replace(found.kernels.changed[0], b=replace(found.kernels.changed[0].b, name=LONG))
    alike = replace(pair, a=replace(pair.a, name=LONG))
    moved = replace(pair, a=replace(pair.a, name=LONG.replace("17", "3")))
    suspect = Suspect(
        "likely", "slower", f"{LONG} spills", (f"{LONG}: spills",), f"`cachekeeper diff a b --kernel {LONG}`"
    )
    kernels = Kernels(1, (alike, moved), (pair.b,), (pair.b,), (LONG,))
    return DiffResult(replace(found, verdict=f"likely {LONG}", suspects=(suspect,), kernels=kernels), (alike,))


def test_long_names_are_cut_in_the_middle_but_in_what_is_to_be_copied():
    output = Lines()
    say(output, _long())  # type: ignore[arg-type]
    long = [line for line in output.lines if len(line) > 80]
    assert long and all(re.fullmatch(f" +(?:to do +)?`cachekeeper diff .*{LONG}`", line) for line in long)
    cut = "triton_per_fused_native_layer_norm_backwa...norm_backward_17"
    assert sum(cut in line for line in output.lines) == 7  # verdict, words, evidence, table, only in a, in b, no choice
    assert "  triton_per_..._norm_backward_3 -> triton_per_...norm_backward_17   slower" in output.lines
    output = Lines()
    say_kernels(output, _long())  # type: ignore[arg-type]
    assert not any("..." in line for line in output.lines) and sum(LONG in line for line in output.lines) > 5


def test_source_is_said_once():
    found = difference()
    pair = replace(found.kernels.changed[1], changes=(Change("source", "98 lines", "85 lines"),))
    output = Lines()
    say(output, DiffResult(replace(found, kernels=Kernels(1, (pair,)))), ["kernels"])  # type: ignore[arg-type]
    assert "    source 98 lines -> 85 lines" in output.lines and "kernels      1 the same, 1 differs" in output.lines


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
    assert command("diff", "default", "warps", "--store", PAIRS, "--html", page).code == 0  # written anew
    for other in (["tf32", "ieee"], ["warps", "default"], ["default", "warps", "--kernel", "softcap"]):
        said = command("diff", *other, "--store", PAIRS, "--html", page)
        assert said.code == 2 and f"{page} is there, and the page of `diff default warps`" in said.err
    said = command("report", "warps", "--store", PAIRS, "--html", page)
    assert said.code == 2 and "likely spills in softcap_0" in page.read_text()
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
    assert said.code == 5 and said.err.splitlines()[1:] == [
        "  softcap_0",
        "  and 17 more",
        f"hint: `cachekeeper diff default warps --only kernels --store {PAIRS}` names those that differ, "
        f"`cachekeeper report warps --json --store {PAIRS}` all of one side",
    ]
    said = command("diff", "default", "warps", "--kernel", "zzz", "--store", PAIRS)
    assert said.code == 5 and said.err.splitlines()[6] == "  and 13 more"
    assert command("diff", "default", "warps", "--only", "nothing", "--store", PAIRS).code == 2
    assert command("diff", "--store", PAIRS).code == 2
