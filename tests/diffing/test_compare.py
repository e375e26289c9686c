"""The whole comparison: of anything with itself, and with the sides swapped; and how long a large one takes."""

from __future__ import annotations

import time
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cachekeeper.diffing.compare import compare
from tests.diffing.samples import SLOW, binary, cpp, differ, graph, inventory, kernel, product, side, winner

SWAPPED = {"slower": "faster", "faster": "slower"}

names = st.sampled_from(["triton_poi_fused_add_1", "triton_poi_fused_add_2", "softcap", ""])
numbers = st.integers(-1, 300)
binaries = st.none() | st.builds(
    lambda registers, local, warps, mix, shared: binary(
        f"{registers}{local}{warps}{mix}{shared}",
        registers=registers,
        local_bytes=local,
        num_warps=warps,
        mix=mix,
        dynamic_shared=shared * 500,
    ),
    *(numbers, numbers, st.sampled_from([None, 0, 1, 8]), st.sampled_from([None, {}, {"tensor": 3}]), numbers),
)
winners = st.builds(
    lambda config, milliseconds: winner(config=config, milliseconds=milliseconds),
    st.sampled_from([None, {"num_warps": 8}, {"num_warps": 4}]),
    st.sampled_from([None, 0.0, 0.1, 0.102, 0.2]),
)
kernels = st.builds(
    lambda name, module, source, key, won, built: kernel(
        name, module=module, source=source, graphs=(key,), winner=won, binary=built
    ),
    *(names, st.sampled_from(["", "c1", "c2"]), st.sampled_from(["", "x = 1", "x = 2"]), st.sampled_from(["fa", "fb"])),
    *(winners, binaries),
)
graphs = st.builds(
    lambda key, content, device: graph(key, content=content, device=device),
    *(st.sampled_from(["fa", "fb", "fc"]), st.sampled_from(["", "c"]), st.sampled_from(["cuda:0", "cuda:1", ""])),
)


def joined(some, others, bits):
    """Kernels are launched by graphs that are there."""
    keys = {one.key for one in others}
    launched = [replace(one, graphs=tuple(key for key in one.graphs if key in keys)) for one in some]
    return inventory(kernels=(*launched, cpp() if bits else kernel()), graphs=tuple(others))


inventories = st.builds(
    joined,
    st.lists(kernels, max_size=4),
    st.lists(graphs, max_size=4, unique_by=lambda one: one.key),
    st.booleans(),
)


@given(inventories)
@settings(max_examples=60, deadline=None)
def test_nothing_differs_from_itself(one):
    found = compare(side(metrics={"tok_s": 5.0}), side(metrics={"tok_s": 5.0}), one, one)
    assert (found.differs, found.verdict.split(" in ")[0], found.suspects) == (False, "no difference", ())
    assert ("no recorded choice for" in found.verdict) is bool(found.kernels.unrecorded)
    assert (found.kernels.only_a, found.kernels.only_b) == ((), ())


@given(inventories, inventories)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_swapped_sides_have_swapped_effects(a, b):
    one, other = (compare(side(), side("b"), *pair) for pair in ((a, b), (b, a)))

    def effects(found, swap):
        return sorted(
            (pair.effect if not swap else SWAPPED.get(pair.effect, pair.effect), len(pair.changes))
            for pair in found.kernels.changed
        )

    assert effects(one, True) == effects(other, False)
    assert (one.differs, len(one.suspects) <= 5) == (other.differs, True)


def test_labels_and_notes():
    found = compare(side("a"), side("b"), inventory(notes=("x", "y")), inventory(notes=("x", "z")))
    assert found.notes == ("x", "a: y", "b: z")
    assert not found.differs


def test_what_is_the_same_but_for_numbers_differs():
    assert differ(inventory(), metrics=SLOW).differs
    assert not differ(inventory(), metrics=({"tok_s": 1.0}, {"tok_s": 1.0})).differs


def many(seed: int, number: int):
    """All keys, modules and binaries are others, and the kernels are in pairs of the same name and source."""
    found = [
        kernel(
            f"triton_poi_fused_{n}", module=f"c{seed}{n}", graphs=(f"f{seed}{n % 700}",), binary=binary(f"{seed}{n}")
        )
        for n in range(number)
    ]
    listed = [graph(f"f{seed}{n}", content="same" if n % 2 else f"c{n}") for n in range(700)]
    return inventory(kernels=tuple(found), graphs=tuple(listed), products=(product(("mm", 0.1)),))


def test_large_ones_are_not_compared_in_square_time():
    def seconds(number: int) -> float:
        a, b = many(0, number), many(1, number)
        began = time.process_time()
        found = compare(side(), side("b"), a, b)
        assert (found.kernels.same, len(found.graphs.pairs)) == (number, 700)
        return time.process_time() - began

    seconds(100)
    assert seconds(4000) < 3


def test_a_side_without_anything_is_compared():
    empty = replace(inventory(), graphs=(), kernels=(), products=(), coverage=(), entries={}, bytes={})
    assert differ(empty).differs
    assert compare(side(fingerprint=None), side(fingerprint=None), empty, empty).verdict == "no difference"
