"""Loaded in every Python of a job: `cachekeeper run` puts this directory first on PYTHONPATH.

It loads the guard when torch is about to be imported, and costs nothing before; then it runs the sitecustomize that
there would have been without it. Written so that every Python since 2.6 can read it; before 3.10 it does no more.
"""

# ruff: noqa: ANN001, ANN202, SIM105, UP004, UP031
# mypy: ignore-errors

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))


class _UntilTorch(object):
    """A finder that finds nothing; it notices that torch is about to be imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        _load()
        from importlib.util import find_spec

        return find_spec(name)  # the list of finders is another one now


class _ThisPackage(object):
    """A finder of one package, wherever it lies: nothing else of that directory is for this Python."""

    def find_spec(self, name, path=None, target=None):
        if name != "cachekeeper":
            return None
        from importlib.util import spec_from_file_location

        source = os.path.join(_PACKAGE, "__init__.py")
        return spec_from_file_location(name, source, submodule_search_locations=[_PACKAGE])


def _load():
    """Guard this process; whatever is wrong with that, the job goes on."""
    try:
        sys.meta_path.insert(0, _ThisPackage())
        import cachekeeper.guard

        cachekeeper.guard.install_from_environment()
        _mark("torch")
    except Exception as error:
        sys.stderr.write("cachekeeper: process %d is not guarded: %r\n" % (os.getpid(), error))


def _mark(what):
    """Leave word in the directory of the run."""
    directory = os.environ.get("CACHEKEEPER_RUN")
    if directory:
        try:
            os.close(os.open(os.path.join(directory, "loaded-" + what), os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError:
            pass


def _start():
    if sys.version_info < (3, 10) or "CACHEKEEPER_GUARD" not in os.environ:
        return
    _mark("python")
    if "torch" in sys.modules:
        _load()
    else:
        sys.meta_path.insert(0, _UntilTorch())


def _next():
    """Import the next sitecustomize on the path in place of this one; what it raises is its own affair."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _HERE]
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if this is not None:
            sys.modules["sitecustomize"] = this
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise


try:
    _start()
except Exception as error:
    sys.stderr.write("cachekeeper: process %d is not guarded: %r\n" % (os.getpid(), error))
_next()
