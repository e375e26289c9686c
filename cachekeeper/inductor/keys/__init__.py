"""The key of a graph: what torch lists of it, and what differs between two.

components      the lines, each a name with a hash and a value
changes         what differs between two keys, without what follows from something else that is said
settings        of what a graph is compiled with     user_kernels    of Triton kernels of the job's own
inputs          of what it is given                  operations      of what it does
words           what a change is, and how values are said
"""
