"""What is changed, and put back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cachekeeper.inside.patches import Patches


class Base:
    def call(self, number: int) -> int:
        return number + 1


class Owner(Base):
    pass


@pytest.fixture
def patches() -> Patches:
    return Patches()


def test_an_attribute_and_one_that_was_inherited(patches: Patches):
    own = SimpleNamespace(value=1)
    assert patches.replace(own, "value", 2) == 1
    patches.replace(Owner, "call", lambda self, number: 0)
    assert (own.value, Owner().call(5), Base().call(5)) == (2, 0, 6)
    patches.undo()
    assert (own.value, Owner().call(5), "call" in vars(Owner)) == (1, 6, False)


def test_what_others_changed_later_is_left(patches: Patches):
    own = SimpleNamespace(value=1)
    patches.replace(own, "value", 2)
    own.value = 3
    patches.undo()
    assert own.value == 3


def test_two_changes_of_one_thing_are_undone_in_reverse(patches: Patches):
    own = SimpleNamespace(value=1)
    patches.replace(own, "value", 2)
    patches.replace(own, "value", 3)
    patches.undo()
    assert own.value == 1


def test_beneath_the_wrapper_of_another_it_does_nothing_any_more(patches: Patches):
    seen: list[object] = []
    patches.before(Base, "call", lambda arguments: seen.append(arguments[1]))
    ours = Base.call
    try:
        Base.call = lambda self, number: ours(self, number)  # type: ignore[method-assign]
        assert (Base().call(1), seen) == (2, [1])
        patches.undo()
        assert (Base().call(2), seen) == (3, [1])
    finally:
        Base.call = ours.__wrapped__  # type: ignore[attr-defined]


def test_what_is_raised_before_a_call_is_raised_by_it(patches: Patches):
    def refuse(arguments: object) -> None:
        raise RuntimeError("no")

    patches.before(Owner, "call", refuse)
    with pytest.raises(RuntimeError, match="no"):
        Owner().call(1)
    patches.undo()
    assert Owner().call(1) == 2


def test_the_code_of_a_function_also_for_those_who_hold_it(patches: Patches):
    scope: dict[str, object] = {}
    exec("def held(x, y=2):\n    return x + y", scope)
    held = scope["held"]
    exec("def new(x, y=2):\n    return [ours, x, y]", other := {})
    original = patches.code(held, other["new"], ours="ours")  # type: ignore[arg-type]
    assert held(1) == ["ours", 1, 2] and original(1) == 3  # type: ignore[operator]
    patches.undo()
    assert held(1) == 3  # type: ignore[operator]


def test_a_closure_keeps_its_code(patches: Patches):
    cell = 1

    def closure() -> int:
        return cell

    with pytest.raises(TypeError, match="free variables"):
        patches.code(closure, lambda: 2)  # type: ignore[arg-type]
    assert closure() == 1
