"""torch and Triton as they are installed, read from their files without importing them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..models import Fact

NO_TORCH = "torch is not installed in this Python"

_ASSIGNMENT = re.compile(
    r"""^(__version__|cuda|hip|git_version)\b[^=\n]*=\s*(?:None|['"]([^'"\n]*)['"])""", re.MULTILINE
)
_TRITON_DISTRIBUTION = re.compile(r"(pytorch_)?triton(_[a-z]+)?-\d[^-]*\.dist-info$", re.IGNORECASE)


@dataclass(frozen=True)
class Package:
    """An importable package on disk.

    Attributes:
        root: its directory, as Python would import it.
        version: its `__version__`, or "" where it could not be read.
        values: what else its version file says, as {"cuda": "13.0", "hip": None}.
        text: the version file.
    """

    root: Path
    version: str
    values: dict[str, str | None]
    text: bytes


def find_torch() -> Package | None:
    """The torch that `import torch` would give, or None."""
    return _find("torch", "version.py")


def find_triton() -> Package | None:
    """The Triton that `import triton` would give, whatever its distribution is called, or None."""
    return _find("triton", "__init__.py")


def version_fact(package: Package | None) -> Fact:
    """torch's version, or why it is not known."""
    if package is None:
        return Fact(unknown=NO_TORCH)
    if not package.version:
        return Fact(unknown=f"no version in {package.root / 'version.py'}")
    return Fact(package.version)


def runtime_fact(package: Package | None, name: str) -> Fact:
    """The CUDA ("cuda") or ROCm ("hip") version that torch was built for; None for a build without it."""
    if package is None:
        return Fact(unknown=NO_TORCH)
    return Fact(package.values.get(name))


def triton_fact(package: Package | None) -> Fact:
    """Triton's version; None where it is not installed."""
    if package is None:
        return Fact(None)
    return Fact(package.version) if package.version else Fact(unknown="no version in triton/__init__.py")


def source_fact(package: Package | None, absent: Fact) -> Fact:
    """A hash that changes with the build and, as far as file sizes tell, with local edits.

    A stand-in for torch's own `torch_key` (torch/_inductor/codecache.py), which reads 46 MB. It covers the
    version file, the SHA-256s that the installer recorded, and every .py whose size is not the recorded one. An
    edit that keeps a file's size is not seen; `--deep` asks torch itself.
    """
    if package is None:
        return absent
    digest = hashlib.sha256(package.text)
    for line in _source_lines(package):
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return Fact(digest.hexdigest())


def recorded_hash(package: Package, inner: str) -> str | None:
    """The SHA-256 (hex) of a file as its installer recorded it, else of its bytes; None without such a file."""
    start = f"{package.root.name}/{inner},sha256="
    for line in _record(package) or ():
        if line.startswith(start):
            return _hex(line[len(start) :].split(",", 1)[0])
    return file_hash(package.root / inner)


def file_hash(path: Path) -> str | None:
    """SHA-256 (hex) of a file's bytes, None where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _find(name: str, version_file: str) -> Package | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(next(iter(spec.submodule_search_locations)))
    try:
        text = (root / version_file).read_bytes()
    except OSError:
        # A namespace package: some directory of that name on sys.path, not an installation.
        return None
    found = {match[1]: match[2] for match in _ASSIGNMENT.finditer(text.decode("utf-8", "replace"))}
    return Package(root, found.pop("__version__", None) or "", found, text)


def _source_lines(package: Package) -> list[str]:
    record = _record(package)
    if record is None:
        return _sizes(package.root)
    # Entry points, bytecode and the installer's own files differ between two installations of one wheel.
    start = package.root.name + "/"
    lines = sorted(line for line in record if line.startswith(start) and ",sha256=" in line)
    return lines + _edited(package.root.parent, lines)


def _edited(site: Path, lines: list[str]) -> list[str]:
    edited = []
    for line in lines:
        name, _, size = line.rsplit(",", 2)
        if not name.endswith(".py"):
            continue
        try:
            present = str(os.stat(f"{site}/{name}").st_size)
        except OSError:
            present = "missing"
        if present != size:
            edited.append(f"{name} {present} {file_hash(site / name)}")
    return edited


def _sizes(root: Path) -> list[str]:
    lines = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in files:
            if name.endswith((".py", ".so")):
                path = Path(folder, name)
                lines.append(f"{path.relative_to(root).as_posix()} {path.stat().st_size}")
    return sorted(lines)


def _record(package: Package) -> list[str] | None:
    for candidate in _distributions(package):
        try:
            lines = (candidate / "RECORD").read_text("utf-8", "surrogateescape").splitlines()
        except OSError:
            continue
        return [line for line in lines if ".pyc," not in line]
    return None


def _distributions(package: Package) -> list[Path]:
    """Its dist-info directories, the one of its own version first (a broken upgrade leaves two)."""
    name = package.root.name
    try:
        entries = sorted(package.root.parent.iterdir())
    except OSError:
        return []
    if name == "triton":
        found = [entry for entry in entries if _TRITON_DISTRIBUTION.match(entry.name)]
    else:
        found = [entry for entry in entries if re.match(rf"{name}-\d[^-]*\.dist-info$", entry.name)]
    return sorted(found, key=lambda entry: f"-{package.version}.dist-info" not in entry.name)


def _hex(urlsafe: str) -> str:
    import base64

    return base64.urlsafe_b64decode(urlsafe + "=" * (-len(urlsafe) % 4)).hex()
