"""What cachekeeper costs, beside tar with zstd, restic, borg and the S3 clients: `python -m tests.benchmarks --help`.

    tree         a made-up compile cache, the same on every machine, and a small change to it
    measuring    one command -> wall seconds, cpu seconds, peak memory
    tools        the command lines of cachekeeper and its peers
    comparison   every tool on the same tree, one after the other, several times
    s3           the same over S3, and the requests it takes
    bucket       the S3 server of that, in a process of its own
    growth       cachekeeper on trees of more and more small files
    startup      what a command costs that does almost nothing
    targets      what the project promises, and whether it was kept
    report       the results as Markdown

Nothing is asserted here. The figures of one quiet run may be compared with each other, never with another day's.
"""
