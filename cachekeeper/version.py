"""The version of the program, and of what it reads and writes in a store (FORMAT.md)."""

__version__ = "0.1.0"
STORE_FORMAT = 1
