"""What max-autotune measured and chose."""

from __future__ import annotations

from cachekeeper.diffing.products import products
from tests.diffing.samples import product

OURS, MORE = "triton_mm BLOCK_M=64", "triton_mm BLOCK_M=128"


def changes(a, b):
    found = products([a], [b])
    return [(change.name, change.a, change.b, change.effect) for pair in found.changed for change in pair.changes]


def test_the_same_winner_within_noise_is_the_same():
    found = products([product((OURS, 0.100))], [product((OURS, 0.104))])
    assert (found.same, found.changed) == (1, ())


def test_the_same_winner_slower():
    assert changes(product((OURS, 0.100)), product((OURS, 0.110))) == [("time", "0.1 ms", "0.11 ms", "slower")]


def test_another_winner_within_noise_has_no_effect():
    found = changes(product((OURS, 0.100), (MORE, 0.102)), product((MORE, 0.101), (OURS, 0.103)))
    assert found == [("winner", OURS, MORE, ""), ("time", "0.1 ms", "0.101 ms", "")]


def test_another_winner_that_both_measured_slower():
    found = changes(product((OURS, 0.100), (MORE, 0.120)), product((MORE, 0.119), (OURS, 0.120)))
    assert found == [("winner", OURS, MORE, "slower"), ("time", "0.1 ms", "0.119 ms", "slower")]


def test_a_slow_run_is_not_the_choice():
    """As an H200 measured the first product of a job, twice: once its clock was not up yet."""
    names = [f"triton_mm BLOCK_M={size}" for size in (64, 128, 16, 32)]
    a = product(*zip(names, (0.01117, 0.01123, 0.01136, 0.01146), strict=True))
    b = product(*zip((names[1], names[0], names[2], names[3]), (0.02115, 0.02298, 0.02304, 0.02339), strict=True))
    found = products([a], [b]).changed[0].changes
    assert [(change.name, change.effect) for change in found] == [("winner", ""), ("time", "")]
    assert "not the choice" in found[1].words


def test_the_library_instead_of_a_template_and_the_other_way():
    template, library = product((OURS, 0.1), ("mm", 0.2)), product(("mm", 0.2))
    (change, _) = products([template], [library]).changed[0].changes
    assert change.words.startswith("the library's product instead of a template")
    (change, _) = products([library], [template]).changed[0].changes
    assert change.words.startswith("a template instead of the library's product")


def test_other_inputs_are_other_products():
    found = products([product((OURS, 0.1))], [product((OURS, 0.1), inputs="bf16[9, 9] x bf16[9, 9]")])
    assert (found.same, len(found.only_a), len(found.only_b)) == (0, 1, 1)


def test_one_that_failed_altogether():
    assert changes(product((OURS, 0.1)), product((OURS, None))) == [("winner", OURS, "nothing measured", "")]
    assert products([product((OURS, None))], [product((OURS, None))]).same == 1


def test_the_same_product_twice_is_matched_once_each():
    found = products([product((OURS, 0.1))] * 2, [product((OURS, 0.1))])
    assert (found.same, len(found.only_a), found.only_b) == (1, 1, ())
