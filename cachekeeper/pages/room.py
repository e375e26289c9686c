"""A page has room for so much: what opens below the rows is left out once it is full."""

from __future__ import annotations

from collections.abc import Callable

from .markup import NOTHING, Html

DETAILS = 3_500_000


class Room:
    """What is left of the space for details, in characters; `left_out` counts what found no more."""

    def __init__(self, characters: int = DETAILS) -> None:
        self._left = characters
        self.left_out = 0

    def hold(self, content: Callable[[], Html]) -> Html:
        """The content, or nothing where it does not fit. It is not even made once something did not fit."""
        made = content() if self._left > 0 else None
        if made is None or len(made) > self._left:
            self._left = 0
            self.left_out += 1
            return NOTHING
        self._left -= len(made)
        return made
