"""A live cache, watched while jobs use it: what vanishes or breaks is put back from the snapshot, and nothing else.

holding    one watch a directory; who holds it
inotify    the kernel's word that something happened; noticing: what of it matters, or polling where there is none
looking    the cache against the snapshot: gone, damaged, or left alone
rate       bytes a second, and entries that vanish again and again
keeping    all of it together, until somebody ends it
telling    one event a line; readiness for systemd
beside     the same in a child process, for as long as a job runs
"""

from .holding import held, interrupted, watcher_of
from .keeping import Keeper, Settings
from .repairing import Totals
from .telling import Event, Tell

__all__ = [
    "Event",
    "Keeper",
    "Settings",
    "Tell",
    "Totals",
    "held",
    "interrupted",
    "watcher_of",
]
