"""How far a long piece of work is."""

from __future__ import annotations

from collections.abc import Callable

# Called with the stage, as "Restoring", how much of it is done, and all of it: bytes mostly.
Progress = Callable[[str, int, int], None]
