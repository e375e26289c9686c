"""Entries of graphs, read without unpickling: real ones of torch 2.13, others of the shape of torch 2.11's."""

from __future__ import annotations

import gzip
import pickle
import random
from pathlib import Path

import pytest

from cachekeeper.inductor.graphs import (
    AutogradEntry,
    autograd_entry,
    content,
    directory_name,
    graph_entry,
    inputs,
    operations,
)

SAMPLES = Path(__file__).parent.parent / "golden" / "sources"
WRAPPER = (SAMPLES / "inference-wrapper.txt").read_text()
OWN = (SAMPLES / "forward-wrapper.txt").read_text()
GELU = "triton_poi_fused_gelu_0"
MODULE = "cv5flzinz7h33npvzkjwtrxaazoeeumdmz7li4x37fwgnqriwbdq"
# What the metadata of a kernel calls its hash, and the directory that the kernel was in.
DIGEST = "55d7e26afce252a520bf82f5d37230b7897b8d9dbea38319feaf99427971dcbb"
DIRECTORY = "KXL6E2X44JJKKIF7QL25G4RQW6EXXDM5X2RYGGP6V6MUE6LR3S5Q"
OTHER = "NSRYC3RKTOFGCXAV5PPSMTC5N6XVWKMYYFEZPC7NZWQTFKBMDI2Q"
KEYS = ["fnb3j7dqotuqj6zepuhlvc6c7zp6ssmw4bdev2xrrx7nkzbu2jue", "feihc5gxloxbwyx2y327qrmu274wnhxtwxfxvnjbdbj57q4wc2gm"]

WHOLE = "\n# To see more debug info, please use `graph_module.print_readable()`"
CODE = """class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "bf16[8, 4][4, 1]cuda:0", arg1_1: "bf16[4, 4][4, 1]cuda:0"):
        # File: /job/job.py:98 in multiply, code: return x @ y * 2
        mm: "bf16[8, 4][4, 1]cuda:0" = torch.ops.aten.mm.default(arg0_1, arg1_1);  arg0_1 = arg1_1 = None
        mul: "bf16[8, 4][4, 1]cuda:0" = torch.ops.aten.mul.Tensor(mm, 2);  mm = None
        return (mul,)
"""
GM = (
    "gm: <lambda>()\n\n\n\ndef forward(self, arg0_1, arg1_1):\n"
    "    mm = torch.ops.aten.mm.default(arg0_1, arg1_1);  arg0_1 = arg1_1 = None\n"
    "    mul = torch.ops.aten.mul.Tensor(mm, 2);  mm = None\n    return (mul,)\n    " + WHOLE
)


def given(number, sizes, strides, kind="torch.bfloat16", index=0):
    return line(
        f"example_inputs[{number}]: TensorMetadata(dtype={kind}, shape=torch.Size([{sizes}]), stride=({strides}), "
        f"device=device(type='cuda', index={index}), layout=torch.strided)"
    )


def line(text):
    return "[a7f7gkia6fyvqpd6bbgbmtnh7iphe5ag7n2qjsbydscoquxllod] " + text


COMPONENTS = (
    line(GM),
    given(0, "8, 4", "4, 1"),
    given(1, "4, 4", "4, 1"),
    line("inductor_config[max_autotune]: False"),
)


def attributes(kernels=(), source=WRAPPER, **others):
    """What an entry of torch 2.11 holds, as far as it is read; `kernels`: (name, directories, module, digests)."""
    bundle = [
        {"kernel_hash": directory, "device": 0, "artifacts": [{"filename": f"{name}.json", "payload": b"{}"}]}
        for name, directories, _, _ in kernels
        for directory in directories
    ]
    autotuners = [
        {
            "cache_key": "cg4res6fzew5jf5lxh4ihyxzwbnjixvne2ehiumkqwpyfycqd2cl",
            "kernel_name": name,
            "fn": f"torch._inductor.runtime.compile_tasks.{module}.{name}",
            "results": [{"hash": digest} for digest in digests],
        }
        for name, _, module, digests in kernels
        if module
    ]
    return {
        "cache_key": "cmccvickfmq23t7mcctt32ttltw2zw66kslhdr6ihvkrd57kdtic",
        "source_code": source,
        "inductor_post_grad_graph_str": CODE,
        "_time_taken_ns": 793144049,
        "_fx_graph_cache_debug_lines": list(COMPONENTS),
        "bundle": bundle,
        "static_autotuners": autotuners,
        **others,
    }


def entry(*arguments, protocol=4, **others):
    return graph_entry(pickle.dumps(attributes(*arguments, **others), protocol))


def real(name):
    return gzip.decompress((SAMPLES / f"{name}.pickle.gz").read_bytes())


# Entries


def test_a_real_entry():
    found = graph_entry(real("cpu-graph"))
    assert found.wrapper == "czml2oqc26dasdmkxwwzw5nlac667x77feqpgitlojqubkbgt5sd"
    assert found.source.startswith("# AOT ID: ['0_forward']\n")
    assert len(found.components) == 636
    assert found.components[0].partition("] ")[2].startswith("gm: GraphModule()\n")
    assert "] example_inputs[1]: TensorMetadata(dtype=torch.float32, shape=torch.Size([32, 48])" in found.components[2]
    assert found.code.startswith("class GraphModule(torch.nn.Module):\n    def forward(self, primals_1: ")
    assert (found.device, found.kernels, found.compiled) == ("cpu", {}, {})
    assert found.modules == {"cpp_fused_gelu_sum_0": ""}
    assert found.seconds == pytest.approx(28.026485)
    assert inputs(found.components) == ("f32[64, 32][32, 1]", "f32[32, 48][48, 1]")
    assert inputs((), found.code) == inputs(found.components)
    expected = {"aten.add": 1, "aten.erf": 1, "aten.mm": 1, "aten.mul": 3, "aten.permute": 2, "aten.sum": 1}
    assert operations(found.components) == operations((), found.code) == expected


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_an_entry(protocol):
    found = entry(protocol=protocol)
    assert found.wrapper == "cmccvickfmq23t7mcctt32ttltw2zw66kslhdr6ihvkrd57kdtic"
    assert (found.source, found.code, found.components) == (WRAPPER, CODE, COMPONENTS)
    assert (found.device, found.seconds) == ("cuda:0", 0.793144049)


def test_code_from_the_key_where_there_is_no_other():
    found = entry(inductor_post_grad_graph_str=None)
    assert found.code == line(GM)


def test_kernels_of_an_entry():
    found = entry([(GELU, [DIRECTORY], MODULE, [DIGEST])])
    assert found.kernels == {GELU: DIRECTORY}
    assert found.compiled == {GELU: (DIRECTORY,)}
    assert found.modules == {GELU: MODULE}


def test_a_kernel_of_several_configurations_cannot_be_told():
    found = entry([(GELU, [DIRECTORY, OTHER], "", [])])
    assert found.kernels == {}
    assert found.compiled == {GELU: (DIRECTORY, OTHER)}


def test_autotuners_say_more_than_the_bundle():
    found = entry([("a", [OTHER], MODULE, []), (GELU, [OTHER, DIRECTORY], MODULE, [DIGEST, "0" * 64])])
    assert found.kernels == {GELU: DIRECTORY}  # a kernel that the wrapper does not launch is not among them
    assert found.compiled == {"a": (OTHER,), GELU: (DIRECTORY,)}


def test_a_kernel_of_the_job_has_another_name_for_triton():
    found = entry([("softcap", [OTHER], "", [])], OWN)
    assert found.kernels == {"softcap_0": OTHER}
    assert found.modules["softcap_0"] == "c2r2lwgevckgjoatg7lo3uh7gdgfislolcppdpf2y4y63p7fevzn"


def test_directories_are_hashes_written_otherwise():
    assert directory_name(DIGEST) == DIRECTORY


def test_an_entry_without_a_wrapper_is_none():
    assert entry(source_code=None) is None
    assert graph_entry(pickle.dumps(["source_code"])) is None


# Entries of AOTAutograd


def test_a_real_entry_of_autograd():
    assert autograd_entry(real("cpu-autograd")) == AutogradEntry(
        "fznlsffup6q5q3wrf3p6tfcrfvyf6r3zrdqts5oelxumajgo4yrr",
        "fnyzvb2xq6gi4xvcioupoxc7li5jfsfe3rj4zjyceir2oszsu64c",
        "",
    )


@pytest.mark.parametrize(
    ("graphs", "found"),
    [
        ([(KEYS[0], "")], (KEYS[0], "", "")),
        ([(KEYS[0], ""), (KEYS[1], "")], (KEYS[0], KEYS[1], "")),
        ([(KEYS[0], "is_inference")], ("", "", KEYS[0])),
        ([(KEYS[0], "is_forward"), (KEYS[1], "is_backward")], (KEYS[0], KEYS[1], "")),
        ([(KEYS[1], "is_backward")], ("", KEYS[1], "")),
    ],
)
def test_directions_of_graphs(graphs, found):
    value = [
        [key, [line(f"fx_kwargs[{name}]: {name == flag}") for name in ("is_backward", "is_inference")] if flag else []]
        for key, flag in graphs
    ]
    assert autograd_entry(pickle.dumps(value)) == found


def test_an_entry_that_names_no_graph_is_none():
    assert autograd_entry(pickle.dumps(["fn", KEYS[0][:-1], KEYS[0].upper()])) is None


# Hostile entries


def test_cut_entries():
    data = real("cpu-graph")
    for length in [*range(0, 200, 7), *range(200, len(data), 2741)]:
        assert graph_entry(data[:length]) is None
        assert autograd_entry(data[:length]) is None


def test_flipped_entries_raise_nothing():
    numbers = random.Random(0)
    data = pickle.dumps(attributes([(GELU, [DIRECTORY], MODULE, [DIGEST])]), 4)
    for _ in range(300):
        flipped = bytearray(data)
        for _ in range(numbers.choice((1, 3, 30))):
            flipped[numbers.randrange(len(flipped))] = numbers.randrange(256)
        found = graph_entry(bytes(flipped))
        if found:
            content("forward", found.components, found.code)
        autograd_entry(bytes(flipped))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"]" * 20_000 + b"a" * 19_999,
        b"X\xff\xff\xff\x7fabc",
        b"\x8d" + b"\xff" * 8 + b"abc",
        b"\x8b\xff\xff\xff\x7f",
        b"I" + b"9" * 100_000 + b"\n",
        b"S'\\d'\n",
        b"S'\\x'\n",
        b"V\\ud800\n",
        b"cos\nsystem\n",
        b"j\xff\xff\xff\xff" * 1000,
        b"X\x02\x00\x00\x00\xff\xfe",
        b"\x8c\x0bsource_code" + b"(" * 1000 + b"\x8c\x01a",
    ],
    ids=range(13),
)
def test_hostile_pickles(body):
    data = b"\x80\x04" + body + b"."
    assert graph_entry(data) is None
    assert autograd_entry(data) is None


def test_nothing_is_called():
    class Evil:
        def __reduce__(self):
            return pytest.fail, ("unpickled",)

    assert graph_entry(pickle.dumps({"evil": Evil(), **attributes()})).source == WRAPPER


# Contents


def changed(old, new, code=CODE, components=COMPONENTS):
    return [text.replace(old, new) for text in components], code.replace(old, new)


def told(direction="inference", components=COMPONENTS, code=CODE):
    return content(direction, components, code)


def test_content_is_a_hash():
    assert told() == told(components=list(COMPONENTS))
    assert len(told()) == 32
    assert int(told(), 16)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("index=0", "index=1"),
        ("cuda:0", "cuda:1"),
        ("max_autotune]: False", "max_autotune]: True"),
        ("arg0_1", "primals_7"),
        ("mul:", "product:"),
        ("/job/job.py:98", "/other.py:1"),
        ("a7f7gkia", "b7f7gkia"),
        ("mm = None", "mm = mm_2 = None"),
    ],
)
def test_content_does_not_depend_on(old, new):
    components, code = changed(old, new)
    assert (components, code) != (list(COMPONENTS), CODE)
    assert told(components=components, code=code) == told()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("aten.mm", "aten.bmm"),
        ("(mm, 2)", "(mm, 3)"),
        ("(arg0_1, arg1_1)", "(arg1_1, arg0_1)"),
        ("(mul,)", "(mm,)"),
        ("bfloat16", "float16"),
        ("[4, 4]", "[4, 5]"),
        ("stride=(4, 1)", "stride=(1, 4)"),
    ],
)
def test_content_depends_on(old, new):
    components, code = changed(old, new)
    assert told(components=components, code=code) not in ("", told())


def test_content_depends_on_the_direction():
    assert len({told(direction) for direction in ("forward", "backward", "inference", "")}) == 4


def test_content_without_components():
    assert told(components=()) == told()  # no pass of Inductor's changed the graph
    for old, new in [("[8, 4][4, 1]", "[9, 4][4, 1]"), ("aten.mm", "aten.bmm"), ("bf16", "f16")]:
        assert told(components=(), code=CODE.replace(old, new)) not in ("", told())
    assert told(components=(), code=CODE.replace("cuda:0", "cuda:1")) == told()


def test_what_passes_change_does_not_count_where_the_components_tell():
    assert told(code=CODE.replace("aten.mul", "aten.view")) == told()
    assert operations(COMPONENTS, CODE.replace("aten.mul", "aten.view")) == {"aten.mm": 1, "aten.mul": 1}
    assert operations((), CODE.replace("aten.mul", "aten.view")) == {"aten.mm": 1, "aten.view": 1}


def test_components_that_torch_cut_do_not_count():
    cut = (COMPONENTS[0][:-100], *COMPONENTS[1:])
    assert told(components=cut, code="") == ""
    assert told(components=cut) == told()
    assert operations(cut) == {}
    assert told(components=(), code="") == ""


def test_a_graph_that_is_listed_by_its_attributes():
    code = GM[GM.index("def forward") : -len(WHOLE)]
    listed = f"gm: ({{'training': True, '_modules': {{}}, '_code': {code!r}, '_meta': {{}}}}, 'import torch')"
    assert told(components=(line(listed), *COMPONENTS[1:]), code="") == told()
    assert told(components=(line(listed.replace("return (mul,)", "mul = ")), *COMPONENTS[1:]), code="") == ""


SUBGRAPH = """
    class mask0(torch.nn.Module):
        def forward(self, arg0_1: "i32[][]cuda:0", arg1_1: "i32[][]cuda:0"):
            ge: "b8[][]cuda:0" = torch.ops.aten.ge.Tensor(arg0_1, arg1_1);  arg0_1 = arg1_1 = None
            return ge
"""


def test_subgraphs_count():
    components = (COMPONENTS[0].replace("    mm = ", "    mask0 = self.mask0\n    mm = "), *COMPONENTS[1:])
    causal, other = (
        told(components=components, code=CODE + text) for text in (SUBGRAPH, SUBGRAPH.replace("ge.", "gt."))
    )
    assert len({causal, other, told()}) == 3
    assert told(components=components, code=CODE + SUBGRAPH.replace("cuda:0", "cuda:1")) == causal
    assert told(components=components, code="") == ""  # what the subgraph does is not known


OWN_KERNEL = (
    "user_defined_triton_source[0]: ('def softcap(source, SIZE: tl.constexpr):\\n    pass\\n', {}, "
    "'[[\"(\\'num_stages\\', 3)\", \"(\\'num_warps\\', 8)\"]]')"
)


def test_the_jobs_own_kernels_count_without_their_launch_options():
    call = "torch.ops.higher_order.triton_kernel_wrapper_mutation(kernel_idx = 3, constant_args_idx = 2, grid = [256])"
    gm = COMPONENTS[0].replace("torch.ops.aten.mul.Tensor(mm, 2)", call)

    def of(gm, kernel):
        return told(components=(gm, *COMPONENTS[1:], line(kernel)))

    first = of(gm, OWN_KERNEL)
    assert of(gm, OWN_KERNEL.replace("num_warps\\', 8", "num_warps\\', 1")) == first
    assert of(gm.replace("idx = 3", "idx = 0").replace("idx = 2", "idx = 9"), OWN_KERNEL) == first
    assert of(gm, OWN_KERNEL.replace("pass", "return")) != first
    assert of(gm.replace("256", "512"), OWN_KERNEL) != first


def test_open_sizes():
    def of(symbol):
        components = (COMPONENTS[0], line(f"example_inputs[0]: ('{symbol}',)"), given(1, f"{symbol}, 4", "4, 1"))
        return inputs(components), told(components=components, code="")

    assert of("s77")[0] == ("s77", "bf16[s77, 4][4, 1]")
    assert of("s77")[1] == of("s0")[1]
    code = CODE.replace('"bf16[8, 4][4, 1]cuda:0", arg1_1', '"Sym(s77)", arg1_1', 1)
    assert inputs((), code) == ("s77", "bf16[4, 4][4, 1]")


def test_inputs_are_in_the_order_of_their_numbers():
    lines = [given(number, str(number), "1", "torch.int64") for number in (10, 2, 0)] + [line("example_inputs[1]: 5")]
    assert inputs(lines) == ("i64[0][1]", "5", "i64[2][1]", "i64[10][1]")
    assert inputs([line("example_inputs[" + "9" * 5000 + "]: 5")]) == ()


@pytest.mark.parametrize(
    "text",
    [
        "def forward(self" * 3_000,
        "def forward(self, " + 'a: "' * 10_000,
        "def forward(self):\n" + "a = b;" * 8_000,
        "def forward(self):\n" + "a = " * 10_000,
        "device(type='a" * 3_000,
        "torch.ops." * 5_000,
        "\n    class a" * 5_000,
        "\ud800 = self.",
    ],
    ids=range(8),
)
def test_hostile_code(text):
    components = [line(f"gm: {text}"), line(f"gm: ({{'_code': '{text}"), line(f"example_inputs[0]: {text}")]
    for lines, code in (((), text), (components, ""), (components[::-1], text)):
        assert isinstance(content("forward", lines, code), str)
        assert isinstance(operations(lines, code), dict)
        assert all(len(shown) < 100_000 for shown in inputs(lines, ""))
