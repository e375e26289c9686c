"""Sleeps in the process group of a job: `python -I -S keeper.py DESCRIPTOR JOB`.

It blocks every signal, so that one which went to the whole group stays pending here, where it can be seen in
/proc/<pid>/status. Where the process at the other end of the socket is gone without a word, killed with -9, it kills
the job with -9: that is what the same signal would have done to the job alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

DONE = b"\0"


def main(descriptor: int, job: int) -> None:
    """Obey the other end until it says that it is done, or is gone.

    Args:
        descriptor: a socket; a byte is the number of a signal, and comes back when that is not pending any more.
        job: process id of a child of the process at the other end, which has not waited for it yet.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    handle = -1
    with contextlib.suppress(AttributeError, OSError):
        handle = os.pidfd_open(job)  # this very process: its number may belong to another one later
    while word := os.read(descriptor, 1):
        if word == DONE:
            return
        while signal.sigtimedwait({word[0]}, 0):
            pass
        os.write(descriptor, word)
    with contextlib.suppress(OSError):
        if handle >= 0:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        else:
            os.kill(job, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
