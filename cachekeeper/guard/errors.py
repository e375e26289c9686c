"""What the guard raises in a job."""


class RanUncompiled(RuntimeError):
    """A function was about to run uncompiled, and the guard was told not to let it: `fallback="error"`."""
