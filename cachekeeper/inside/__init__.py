"""What runs inside the process that has torch. Nothing here is imported by the commands themselves.

__main__   `python -m cachekeeper.inside`: one process of a warmup: reads the job, writes a line of JSON an event
job        the job, and the events
target     "train.py:step" -> the function, as the user's own script would find it
steps      runs a function for each step of a plan
watch      everything below, for one step
compiles   what torch's caches say of each graph, recompiles, graph breaks
launches   compilers started, and kernels that Triton compiled
fallbacks  what ran uncompiled though it was to be compiled; calls of compiled graphs
memory     of the device, at most and left over
settings   torch's configuration in a thread, and where two threads differ
"""
