"""What a cache holds, read from its files without unpickling or loading anything.

reading       a cache's files -> its inventory      models      what that is
tree, budget  the files, and how much is read       listing     what they are, by their names
modules       wrappers and kernels' modules         graphs      entries, joined with wrappers and telemetry
kernels       what graphs launch, joined with the directories they were compiled to, and with choices
own, cpp      kernels of the job's own, and in C++  products, coverage   what was measured; for which devices
"""
