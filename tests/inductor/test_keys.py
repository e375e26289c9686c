"""What the components of an FX graph's key say."""

from __future__ import annotations

import pytest

from cachekeeper.inductor.keys.changes import explain, in_words
from cachekeeper.inductor.keys.components import components, device, differences, direction

# As torch 2.13 lists them.
BASE = [
    "[gm00] gm: <lambda>()\n\n\n\ndef forward(self, x):\n    a = 1: 2\n    return (a,)",
    "[in00] example_inputs[0]: TensorMetadata(dtype=torch.float32, shape=torch.Size([8, 8]), "
    "device=device(type='cuda', index=5), layout=torch.strided)",
    "[kw00] fx_kwargs[is_inference]: True",
    "[kw01] fx_kwargs[is_backward]: False",
    "[tv00] torch_version: b'\\x01\\x02'",
    "[ic00] inductor_config[max_autotune]: False",
    "[ic01] inductor_config[trace.enabled]: False",
]


def changed(**new: str) -> list[str]:
    """The same lines, but for those that begin with [name]."""
    return [new.get(line[1:5], line) for line in BASE]


def test_lines_are_taken_apart():
    found = components([*BASE, "no component", "[ab]no space: x", "[ab] no colon"])
    assert len(found) == len(BASE)
    assert found["inductor_config[max_autotune]"] == ("ic00", "False")
    assert found["gm"].hash == "gm00" and found["gm"].value.endswith("return (a,)")


def test_differences_are_those_of_hashes():
    old = components(BASE)
    new = components(changed(ic00="[ic99] inductor_config[max_autotune]: True"))
    assert differences(old, new) == ["inductor_config[max_autotune]"]
    assert differences(old, components(changed(ic01="[ic01] inductor_config[trace.enabled]: True"))) == []
    assert differences(old, components([*BASE, "[zz] added: 1"])) == ["added"]
    assert differences(components([*BASE, "[zz] gone: 1"]), old) == ["gone"]


def said(old: list[str], new: list[str]) -> list[str]:
    before, after = components(old), components(new)
    return in_words(differences(before, after), before, after)


def test_a_difference_in_words():
    assert said(BASE, changed(gm00="[gm99] gm: other")) == ["the graph's operations differ"]
    assert said(BASE, changed(tv00="[tv99] torch_version: other")) == ["torch's source differs"]
    assert said(BASE, changed(ic00="[x] inductor_config[max_autotune]: True")) == [
        "inductor config max_autotune: False -> True"
    ]
    assert said(BASE, [*BASE, "[z] added: 1"]) == ["added: nothing -> 1"]
    [long] = said(BASE, [*BASE, "[z] added: " + "very  long\n" * 40])
    assert long.startswith("added: nothing -> very long very long") and long.endswith("...")
    assert len(long) == len("added: nothing -> ") + 120


def tensor(number: int, size: str = "8, 8", stride: str = "(8, 1)", device: str = "'cuda', index=5") -> str:
    """An input as torch lists it; its hash is that of its text."""
    value = (
        f"TensorMetadata(dtype=torch.float32, shape=torch.Size([{size}]), stride={stride}, "
        f"device=device(type={device}), layout=torch.strided, storage_offset=0)"
    )
    return f"[{abs(hash(value))}] example_inputs[{number}]: {value}"


def test_of_inputs_the_attributes_that_differ_are_named_together():
    cuda0 = [tensor(number, device="'cuda', index=0") for number in range(8)]
    cuda5 = [tensor(number) for number in range(8)]
    assert said(cuda0, cuda5) == ["inputs 0, 1, 2, 3, 4, 5 and 2 more: device cuda:0 -> cuda:5"]
    assert said([tensor(0)], [tensor(0, device="'cpu'")]) == ["input 0: device cuda:5 -> cpu"]
    turned = [tensor(0), tensor(1, size="16, 8", stride="(1, 16)")]
    assert said([tensor(0), tensor(1)], turned) == [
        "input 1: shape (8, 8) -> (16, 8)",
        "input 1: stride (8, 1) -> (1, 16)",
    ]
    assert said(["[a] example_inputs[0]: ('s0',)"], ["[b] example_inputs[0]: 8"]) == ["input 0: ('s0',) -> 8"]


def test_the_nearest_known_key_explains():
    far = changed(ic00="[x] inductor_config[max_autotune]: 2", in00="[y] example_inputs[0]: none")
    near = changed(ic00="[x] inductor_config[max_autotune]: True")
    assert explain(BASE, [far, near]) == ["inductor config max_autotune: True -> False"]


def test_a_key_of_the_same_graph_is_nearer_than_any_other():
    other_graph = changed(gm00="[x] gm: another")
    far = changed(ic00="[x] inductor_config[max_autotune]: 2", in00="[y] example_inputs[0]: none")
    assert [line.partition(":")[0] for line in explain(BASE, [other_graph, far])] == [
        "inductor config max_autotune",
        "input 0",
    ]


@pytest.mark.parametrize(("lines", "known"), [(BASE, []), ([], [BASE]), ([], []), (BASE, [BASE])])
def test_nothing_is_explained_by_nothing(lines: list[str], known: list[list[str]]):
    assert explain(lines, known) == []


def test_many_differences_are_cut():
    known = [f"[a{number}] name{number}: 1" for number in range(9)]
    lines = [f"[b{number}] name{number}: 2" for number in range(9)]
    found = explain(lines, [known])
    assert found == [*(f"name{number}: 1 -> 2" for number in range(6)), "and 3 more"]


@pytest.mark.parametrize(
    ("inference", "backward", "word"),
    [("True", "False", "inference"), ("False", "True", "backward"), ("False", "False", "forward")],
)
def test_directions(inference: str, backward: str, word: str):
    lines = [f"[a] fx_kwargs[is_inference]: {inference}", f"[b] fx_kwargs[is_backward]: {backward}"]
    assert direction(lines) == word


def test_no_direction_is_made_up():
    assert direction([]) == direction(["[a] gm: x", "[b] fx_kwargs[cudagraphs]: True"]) == ""


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        (BASE, "cuda:5"),
        ([*BASE, "[in01] example_inputs[1]: TensorMetadata(device=device(type='cpu'))"], "cpu, cuda:5"),
        ([*BASE, "[in01] example_inputs[1]: T(device=device(type='cuda', index=5))"], "cuda:5"),
        (["[a] example_inputs[0]: s0", "[b] default_cuda_device_index: device(type='cuda', index=0)"], ""),
        ([], ""),
    ],
)
def test_devices_are_those_of_the_inputs(lines: list[str], where: str):
    assert device(lines) == where
