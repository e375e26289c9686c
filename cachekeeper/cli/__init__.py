"""The command line: options in, one call of a verb, words out. `entry.main` holds the only try/except.

entry        errors and signals -> words and exit codes
group        the commands, each imported when it is used
options      options that several commands share
output       one result -> words, JSON or silence
<command>    one file a command
"""

from .entry import main

__all__ = ["main"]
