"""Changes to torch that can be taken back."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

Note = Callable[[tuple[Any, ...]], object]
Within = Callable[[tuple[Any, ...]], contextlib.AbstractContextManager[object]]


class Patches:
    """What was changed, so that it can be put back in reverse order.

    Attributes:
        active: False once it was put back. What others had wrapped by then stays beneath their wrapper: it must do
            nothing any more.
    """

    def __init__(self) -> None:
        self.active = True
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, new: Any) -> Any:
        """Put something in the place of an attribute. Returns what was there.

        Where somebody else changed it later, taking it back leaves theirs.
        """
        # A class's own attribute, not what it inherits.
        own = name in vars(owner)
        original = inspect.getattr_static(owner, name)
        setattr(owner, name, new)

        def undo() -> None:
            if vars(owner).get(name) is new:
                setattr(owner, name, original) if own else delattr(owner, name)

        self._undo.append(undo)
        return original

    def before(self, owner: Any, name: str, note: Note) -> None:
        """Call `note` with the arguments before each call; what it raises, the call raises."""

        @contextlib.contextmanager
        def noted(arguments: tuple[Any, ...]) -> Iterator[None]:
            note(arguments)
            yield

        self.around(owner, name, noted)

    def around(self, owner: Any, name: str, within: Within) -> None:
        """Do each call in a context, which is made from its arguments."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            if not self.active:
                return original(*arguments, **options)
            with within(arguments):
                return original(*arguments, **options)

        self.replace(owner, name, wrapper)

    def code(self, function: FunctionType, new: Callable[..., object], **names: object) -> FunctionType:
        """Give a function other code, also for those who hold it already, and names that the code uses.

        Args:
            new: without free variables; its globals are those of `function`.

        Returns:
            A copy with the code that it had.
        """
        original, changed = function.__code__, new.__code__
        # A closure has cells for as many free variables as the code has.
        if original.co_freevars or changed.co_freevars:
            raise TypeError(f"{function.__qualname__} has free variables")
        copy = FunctionType(original, function.__globals__, function.__name__, function.__defaults__)
        function.__globals__.update(names)
        function.__code__ = changed

        def undo() -> None:
            if function.__code__ is changed:
                function.__code__ = original

        self._undo.append(undo)
        return copy

    def then(self, undo: Callable[[], None]) -> None:
        """Do this too when the changes are taken back."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Put everything back."""
        self.active = False
        while self._undo:
            self._undo.pop()()


def attribute(owner: Any, path: Sequence[str]) -> Any:
    """What is below an object; None where this torch does not have it."""
    for name in path:
        owner = getattr(owner, name, None)
    return owner
