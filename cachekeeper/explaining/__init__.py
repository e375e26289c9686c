"""Why graphs missed: what differs from the nearest graph that is known, grouped by cause, with what to do about it.

known      graphs that are known, and the nearest of them
missed     what a process told -> what missed, each graph once
reasons    why one graph missed; threads: where it is a setting that only some threads have
causes     what missed -> causes, most graphs first
advice     what to do about a cause
"""

from .causes import Cause, Explanation, explain_run

__all__ = ["Cause", "Explanation", "explain_run"]
