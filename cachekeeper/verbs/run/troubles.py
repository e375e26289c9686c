"""What fails of ours while the job goes its way, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...errors import CachekeeperError
from ...warming import Listener as WarmupListener
from .result import NOT_STARTED, Trouble

Done = TypeVar("Done")


class Listener:
    """Is told what happens; does nothing with it."""

    def trouble(self, trouble: Trouble) -> None:
        """Something of ours failed."""

    def note(self, text: str) -> None:
        """What a person should know before the job."""

    def warmup(self) -> WarmupListener:
        """A warmup begins: who is told of its steps."""
        return WarmupListener()


class Troubles:
    """The troubles of one run, and what else a person should know.

    Args:
        strict: before the job, a failure of ours is raised.
        listener: is told of each as it comes.

    Attributes:
        notes: a sentence each.
        job_started: from now on nothing is raised.
    """

    def __init__(self, strict: bool, listener: Listener) -> None:
        self.strict = strict
        self.listener = listener
        self.job_started = False
        self.notes: list[str] = []
        self._found: list[Trouble] = []

    @property
    def found(self) -> tuple[Trouble, ...]:
        """What failed until now."""
        return tuple(self._found)

    def attempt(self, what: str, do: Callable[[], Done]) -> Done | None:
        """Do something of ours; where it fails, `what` is not done, and None comes back.

        Raises:
            CachekeeperError: with `strict`, before the job.
        """
        try:
            return do()
        except Exception as error:
            self.failed(what, error)
            return None

    def failed(self, what: str, error: Exception) -> None:
        """Take note of a failure of ours, or with `strict` do not start the job."""
        known = error if isinstance(error, CachekeeperError) else None
        if self.strict and not self.job_started:
            raised = known or CachekeeperError(f"{what}: {error!r}", hint="please report it")
            raised.exit_code = NOT_STARTED
            raise raised from None
        if known is None:
            trouble = Trouble(what, "unexpected", repr(error))
        else:
            trouble = Trouble(what, known.code, known.message, known.facts, known.hint)
        self._found.append(trouble)
        self.listener.trouble(trouble)

    def note(self, text: str) -> None:
        """Take note of what a person should know before the job."""
        self.notes.append(text)
        self.listener.note(text)
