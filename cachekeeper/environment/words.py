"""Facts as people read them."""

from __future__ import annotations

import re

from ..models import Fact, Fingerprint, Value

_HASHES = frozenset(["torch_source", "triton_source", "ptxas", "libdevice"])
_HASH_DIGITS = 12
_VENDORS = re.compile(r"^(NVIDIA|AMD|Tesla)\s+(GeForce\s+|Instinct\s+)?")


def shown(name: str, fact: Fact | None) -> str:
    """A fact on one line: "2.13.0+cpu", "NVIDIA H200 sm_90", "none", "unknown (reason)", "not recorded"."""
    if fact is None:
        return "not recorded"
    if fact.unknown:
        return f"unknown ({fact.unknown})"
    if name == "gpu" and isinstance(fact.value, list):
        return ", ".join(_gpu(item) for item in fact.value)
    if name in _HASHES and isinstance(fact.value, str):
        return fact.value[:_HASH_DIGITS]
    return plain(fact.value)


def plain(value: Value) -> str:
    """JSON data in words: None as "none", a list with commas, an object as "key=value"."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(plain(item) for item in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}={plain(item)}" for key, item in value.items()) or "none"
    return str(value) if value != "" else "(empty)"


def summary(fingerprint: Fingerprint) -> str:
    """One short line for a table, as "H200 sm_90 cu130 2.11.0" or "CPU avx2 2.13.0"."""
    facts = fingerprint.must
    parts = [_device(facts.get("gpu", Fact()), facts.get("instruction_set", Fact()))]
    parts += [_runtime(facts.get("cuda", Fact()), "cu"), _runtime(facts.get("hip", Fact()), "rocm")]
    torch = facts.get("torch", Fact(unknown="not recorded"))
    parts.append("torch unknown" if torch.unknown else str(torch.value).split("+")[0])
    return " ".join(filter(None, parts))


def _gpu(item: object) -> str:
    if not isinstance(item, dict):
        return str(item)
    name, capability = str(item.get("name", "?")), str(item.get("capability", "?"))
    return name if name == capability else f"{name} {capability}"


def _device(gpu: Fact, instruction_set: Fact) -> str:
    if gpu.unknown:
        return "GPU unknown"
    if isinstance(gpu.value, list) and gpu.value:
        names = dict.fromkeys(_VENDORS.sub("", _gpu(item)) for item in gpu.value)
        return " + ".join(names)
    return "CPU" if instruction_set.unknown else f"CPU {instruction_set.value or ''}".strip()


def _runtime(version: Fact, prefix: str) -> str:
    if version.unknown or not version.value:
        return ""
    digits = str(version.value).split("-")[0].split(".")[:2]
    return prefix + ("" if prefix == "cu" else ".").join(digits)
