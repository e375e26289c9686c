"""The command: a screen, a page, an object."""

from __future__ import annotations

import os
import re
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.cli.pages import write_page
from cachekeeper.cli.report import _say_history, _say_kernels
from cachekeeper.errors import UsageError
from cachekeeper.inventory.models import Binary, Inventory, Kernel
from cachekeeper.verbs.report import HistoryPoint
from tests import samples

from .conftest import Command


@pytest.fixture
def ids(home: Path, machine: object) -> list[str]:
    first = cachekeeper.snapshot("drafter", wait=0, metrics={"tok_s": 21500}, proof=samples.proof()).snapshot.id
    second = cachekeeper.snapshot("drafter", wait=0, metrics={"tok_s": 12800, "loss": 2.5}, tags={"a": "b"})
    return [first, second.snapshot.id]


def test_on_screen(home: Path, command: Command, ids: list[str]):
    said = command("report", "drafter")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    told = {line[:12].rstrip(): line[13:] for line in lines}
    assert told["snapshot"] == f"{ids[1][:8]} drafter"
    assert (told["metrics"], told["tags"]) == ("loss 2.5  tok_s 12,800", "a=b")
    assert told["environment"] == "H200 sm_90 cu130 2.11.0"
    assert told["holds"].startswith("13 entries, ") and " 2 fxgraph," in told["holds"]
    assert all(len(line) <= 80 or " " not in line.strip() for line in lines)  # a path is never cut
    at = next(number for number, line in enumerate(lines) if line.startswith("history "))
    assert lines[at].split() == [
        "history",
        "age",
        "graphs",
        "triton",
        "native",
        "size",
        "cold",
        "warm",
        "loss",
        "tok_s",
    ]
    older, newer = (line.split() for line in lines[at + 1 : at + 3])
    assert older[0] == ids[0][:8] and older[-6:] == ["11.8", "s", "4.5", "s", "-", "21,500"]
    assert newer[:2] == [ids[1][:8], "*"] and newer[-4:] == ["-", "-", "2.5", "12,800"]


def test_in_every_mode(home: Path, command: Command, ids: list[str]):
    assert command("report", "drafter@{1}", "-q") == (0, ids[0] + "\n", "")
    document = command("report", "drafter@{1}", "--json").json
    assert document["schema"] == "cachekeeper.report/1" and document["side"]["id"] == ids[0]
    assert [point["is_this"] for point in document["history"]] == [True, False]
    assert document["inventory"]["entries"]["fxgraph"] == 2
    assert document["side"]["proof_seconds"] == pytest.approx([11.8, 4.5])


class Lines:
    """What a person would see."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str = "") -> None:
        self.lines.append(text)


def kernel(number: int, **binary: int) -> Kernel:
    name = f"triton_poi_fused_add_mul_native_layer_norm_{number}"
    return Kernel(name, bytes=1024 * number, binary=Binary("h", **binary))


def test_the_largest_kernels_first():
    found = Inventory(
        kernels=(*map(kernel, range(11)), kernel(50, registers=255, local_bytes=4144, dynamic_shared=231424)), tried=7
    )
    output = Lines()
    _say_kernels(output, found)  # type: ignore[arg-type]
    assert output.lines[1].split() == ["largest", "kernels", "size", "registers", "spills", "shared"]
    assert output.lines[2].split() == [
        "triton_poi_fused_add_mul_...ayer_norm_50", "50.0", "KiB", "255", "4,144", "231,424",
    ]  # fmt: skip
    assert [line.split()[1] for line in output.lines[3:12]] == [f"{number}.0" for number in range(10, 1, -1)]
    assert output.lines[12:] == ["  and 2 more, 1 kernel with spills, 7 that only autotuning tried"]
    assert max(map(len, output.lines)) <= 80


def test_a_long_history_has_its_last_points():
    points = [HistoryPoint(f"{number:08}" * 8, "x", "2026-01-31T08:15:00Z", number=number) for number in range(1, 31)]
    output = Lines()
    _say_history(output, points)  # type: ignore[arg-type]
    assert [line.split()[0] for line in output.lines[2:12]] == [f"{number:08}" for number in range(21, 31)]
    assert output.lines[12:] == ["  and 20 before (all of them with --json)"]


def test_names_of_metrics_are_whole_and_the_line_fits():
    metrics = dict.fromkeys(("latency_ms_of_a_step", "tokens_per_second", "loss_on_the_holdout"), 13423560.4)
    points = [
        HistoryPoint(f"{number:08}" * 8, "x", "2026-01-31T08:15:00Z", 9, 3, 7, 12, metrics=metrics) for number in (1, 2)
    ]
    output = Lines()
    _say_history(output, points)  # type: ignore[arg-type]
    assert output.lines[1].split() == ["history", "age", "graphs", "triton", "native", "size", "latency_ms_of_a_step"]
    assert output.lines[2].split()[-6:] == ["3", "7", "12", "0", "B", "13,423,560"]
    assert max(map(len, output.lines)) <= 80
    output = Lines()
    _say_history(output, [HistoryPoint("0" * 64, "x", "2026-01-31T08:15:00Z", 9, 3)])  # type: ignore[arg-type]
    assert output.lines[1].split() == ["history", "age", "graphs", "size"]


# Pages


def test_a_page(home: Path, command: Command, ids: list[str]):
    page = home / "page.html"
    said = command("report", "drafter", "--html", page)
    assert (said.code, said.out, said.err) == (0, f"ok  Wrote {page}\n", "")
    text = page.read_text()
    assert re.match(r"<!-- a page of cachekeeper: report drafter -->\n<!doctype html>\n", text, re.IGNORECASE)
    assert text.rstrip().endswith("</html>") and ids[1][:8] in text and "12800" in text.replace(",", "")
    assert os.listdir(home).count("page.html") == 1 and not list(home.glob(".page*"))
    assert command("report", "drafter", "--html", page, "-q") == (0, ids[1] + "\n", "")
    assert command("report", "drafter", "--html", page, "--json").json["side"]["id"] == ids[1]


def test_a_page_on_standard_output(home: Path, command: Command, ids: list[str]):
    said = command("report", "drafter", "--html", "-")
    assert said.code == 0 and said.err == ""
    assert said.out.startswith("<!-- a page of cachekeeper") and said.out.rstrip().endswith("</html>")
    assert command("report", "drafter", "--html", "-", "--json").code == 2


def test_nothing_else_is_overwritten_but_with_force(home: Path, command: Command, ids: list[str]):
    page = home / "page.html"
    page.write_text("<!doctype html>\n<p>mine</p>")
    said = command("report", "drafter", "--html", page)
    assert said.code == 2 and said.out == "" and "is there, and no page of cachekeeper" in said.err
    assert page.read_text() == "<!doctype html>\n<p>mine</p>"
    assert command("report", "drafter", "--html", page, "--force").code == 0
    assert "mine" not in page.read_text()
    page.write_bytes(b"")
    assert command("report", "drafter", "--html", page).code == 0
    assert command("report", "drafter", "--html", page).code == 0  # the page of the same
    said = command("report", "drafter@{1}", "--html", page)
    assert said.code == 2 and f"{page} is there, and the page of `report drafter`\n" in said.err
    assert command("report", "drafter@{1}", "--html", page, "--force").code == 0
    assert page.read_text().startswith("<!-- a page of cachekeeper: report drafter@{1} -->\n")
    assert command("report", "drafter", "--html", page, "--force").code == 0
    (home / "link.html").symlink_to(page)
    assert command("report", "drafter", "--html", home / "link.html").code == 0
    assert (home / "link.html").is_symlink()
    assert command("report", "drafter", "--html", home, "--force").code == 2
    assert command("report", "drafter", "--html", "/dev/null").code == 0 and not Path("/dev/null").is_file()


def test_what_cannot_be_written_is_exit_8(home: Path, command: Command, ids: list[str]):
    said = command("report", "drafter", "--html", home / "none" / "page.html")
    assert said.code == 8 and said.err.startswith("error[local-disk]: cannot write the page\n")
    assert "No such file or directory" in said.err
    said = command("report", "drafter", "--html", "/proc/page.html")
    assert said.code == 8


def test_of_a_directory_that_is_not_there_it_says_how_to_make_it(home: Path, command: Command, ids: list[str]):
    said = command("report", "drafter", "--html", home / "no ne" / "x" / "page.html")
    assert said.code == 8 and said.err.endswith(f"hint: make the directory first: `mkdir -p '{home}/no ne/x'`\n")


def test_an_empty_name_is_no_file(home: Path, command: Command, ids: list[str]):
    said = command("report", "drafter", "--html", "")
    assert (said.code, said.out) == (2, "") and "an empty name is no file" in said.err


def test_a_pipe_that_nobody_reads_is_refused_at_once(home: Path, command: Command, ids: list[str]):
    os.mkfifo(home / "pipe")
    said = command("report", "drafter", "--html", home / "pipe")
    assert said.code == 2 and f"nobody reads from the pipe {home / 'pipe'}\nhint: first start what does" in said.err
    with ThreadPoolExecutor(1) as readers:
        told = readers.submit((home / "pipe").read_text)
        while (said := command("report", "drafter", "--html", home / "pipe")).code == 2:
            pass  # until the reader has opened it
        assert (said.code, said.out) == (0, f"ok  Wrote {home / 'pipe'}\n")
        assert told.result().rstrip().endswith("</html>")
    assert stat.S_ISFIFO((home / "pipe").stat().st_mode)


def test_a_socket_is_no_file(home: Path, command: Command, ids: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(home)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        said = command("report", "drafter", "--html", "socket", "--force")
    assert said.code == 2 and "socket is no file" in said.err


@pytest.mark.parametrize("place", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_each_name_of_standard_output(home: Path, command: Command, ids: list[str], place: str):
    said = command("report", "drafter", "--html", place)
    assert said.code == 0 and said.out.startswith("<!-- a page of") and said.out.endswith("</script></body></html>\n")
    assert command("report", "drafter", "--html", place, "--json").code == 2


def test_what_the_process_has_open_already(home: Path, command: Command, ids: list[str]):
    said = command("report", "drafter", "--html", "/dev/stderr")
    assert said.out == "ok  Wrote /dev/stderr\n" and said.err.endswith("</html>\n")
    inward, outward = os.pipe()
    with ThreadPoolExecutor(1) as readers, open(inward, "rb") as reader:
        told = readers.submit(reader.read)
        assert command("report", "drafter", "--html", f"/dev/fd/{outward}").code == 0
        os.close(outward)  # it is still ours
        assert told.result().endswith(b"</html>\n")
    said = command("report", "drafter", "--html", f"/dev/fd/{outward}")
    assert said.code == 8 and "Bad file descriptor" in said.err


@pytest.mark.parametrize("name", ["x --> <script>", "a\nb", "\udcff", "x" * 5_000, "%20", "a b"])
def test_no_name_ends_the_first_line_of_a_page(tmp_path: Path, name: str):
    page = tmp_path / "page.html"
    write_page(str(page), "<p>", False, ("diff", name, "b"))
    first, rest = page.read_bytes().split(b"\n", 1)
    assert rest == b"<p>" and first.endswith(b" b -->") and first.count(b">") == 1 and first.count(b" ") == 8
    write_page(str(page), "<p>2", False, ("diff", name, "b"))
    with pytest.raises(UsageError, match="is there, and the page of"):
        write_page(str(page), "<p>3", False, ("diff", f"{name}.", "b"))
    assert page.read_bytes().endswith(b"<p>2")


def test_exit_codes(home: Path, command: Command, ids: list[str]):
    assert command("report").code == 2
    assert command("report", "draftr").code == 5


def test_json_leaves_out_what_keys_are_made_of(command: Command):
    found = command("report", "warps", "--store", Path(__file__).parents[1] / "golden/pairs", "--json").json
    graphs = found["inventory"]["graphs"]
    assert len(graphs) == 2 and all("components" not in graph and graph["operations"] for graph in graphs)
