"""A live cache -> a trash beside it, from which it comes back.

    <parent>/.<name>.cleared/                   the owner's alone
        <when>-<random>/                        what one clear moved away, whole
        deleting-<random>/                      on its way out for good
    <cache dir>/.cachekeeper/cleared/           the same, where the directory itself cannot be renamed: a mount point
        moving-<when>-<random>/                 contents on their way there, or back

places      which directories may be cleared, and when
trash       moves a cache away, and back
items       what lies in the trash: its name, its time, its size
emptying    deletes it for good; nothing else does
"""
