"""What max-autotune measured, with names that say what was tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ..inductor.sources import KernelModule
from ..inductor.tuning import Measured, inputs_in_words, measured
from .budget import Reader
from .directories import is_json
from .models import Option, Product
from .tree import TreeFile

_TEMPLATES = "triton_"
_LAUNCH = ("num_warps", "num_stages")


def read_measured(files: Iterable[TreeFile], reader: Reader) -> list[Measured]:
    """What the files of measurements hold, in the order of their paths."""
    found: list[Measured] = []
    for file, data in reader.each(files, "measurements"):
        held = measured(data)
        if not held and not is_json(data):
            reader.reject(file, "measurements")
        found += held
    return found


def products(found: Iterable[Measured], modules: Mapping[str, KernelModule]) -> tuple[Product, ...]:
    """All products, sorted by operation, inputs and precision.

    Args:
        modules: name -> module of Inductor, to tell what a choice was.
    """
    seen = [
        Product(item.operation, inputs_in_words(item.inputs), item.precision, _options(item.times, modules))
        for item in found
        if item.times
    ]
    # A file for each machine that shared the cache: the same product may be in several.
    return tuple(sorted(seen, key=lambda item: (item.operation, item.inputs, item.precision, _best(item))))


def _best(product: Product) -> float:
    return product.best.milliseconds or 0.0 if product.best else float("inf")


def _options(times: Mapping[str, float | None], modules: Mapping[str, KernelModule]) -> tuple[Option, ...]:
    names = {choice: _name(choice, modules) for choice in times}
    often = Counter(names.values())
    options = [
        Option(name if often[name] == 1 else f"{name} ({choice.rpartition('-')[2][:8]})", times[choice])
        for choice, name in names.items()
    ]
    return tuple(sorted(options, key=_speed))


def _speed(option: Option) -> tuple[bool, float, str]:
    return option.milliseconds is None, option.milliseconds or 0.0, option.name


def _name(choice: str, modules: Mapping[str, KernelModule]) -> str:
    """What was tried: a template with its sizes, or a library's function."""
    base, _, hashed = choice.rpartition("-")
    module = modules.get(hashed)
    if module is None:
        # A choice of a library has a hash as well, of its inputs and not of a module.
        return f"{base} ({hashed[:8]})" if base.startswith(_TEMPLATES) else base or choice
    blocks = [f"{name}={value}" for name, value in module.sizes.items() if name not in _LAUNCH]
    launch = [f"{name}={module.sizes[name]}" for name in _LAUNCH if name in module.sizes]
    return " ".join([base, *blocks, *launch])
