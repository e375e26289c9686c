"""Runs a plan in fresh processes, and judges whether one found everything in the cache.

running   a plan -> a report a step; where the processes read and write
process   one fresh Python that does a job, and tells what it does
judging   reports -> why it is in doubt that a fresh process hits, and the certificate where it is not
"""

from .judging import as_log, direction_notes, judge, order_notes, told
from .running import PROVING, Listener, Rows, Run, certify, places, replay, run

__all__ = [
    "PROVING",
    "Listener",
    "Rows",
    "Run",
    "as_log",
    "certify",
    "direction_notes",
    "judge",
    "order_notes",
    "places",
    "replay",
    "run",
    "told",
]
