"""What cachekeeper does: one function a file, each a command of the same name, returning a frozen result.

Nothing here prints; progress arrives through a callback `progress(stage, done, total)`, in bytes.
"""
