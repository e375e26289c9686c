"""What cachekeeper costs, beside tar with zstd, restic and borg: `python -m tests.benchmarks --help`.

    tree         a made-up compile cache, the same on every machine, and a small change to it
    measuring    one command -> wall seconds, cpu seconds, peak memory
    tools        the command lines of cachekeeper and its peers
    comparison   every tool on the same tree, one after the other, several times
    growth       cachekeeper on trees of more and more small files
    startup      what a command costs that does almost nothing
    targets      what the project promises, and whether it was kept
    report       the results as Markdown

Nothing is asserted here. The figures of one quiet run may be compared with each other, never with another day's.
"""
