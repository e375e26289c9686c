"""What to do about a cause."""

from __future__ import annotations

from collections.abc import Collection, Iterable

# Settings that code sets in a thread, and that another thread then does not see.
OF_A_THREAD = ("setting", "option", "autocast")

# Kind of a change -> what to do. The first that fits is said first; a change of torch comes before all others.
_ADVICE = {
    "torch": "torch, or a file of it, is another than when the cache was filled: warm again with this one and save it "
    "too; each torch finds its own",
    "triton": "triton is another than when the cache was filled: warm again with this one and save it too",
    "system": "compiled graphs are for one kind of GPU and CUDA: warm on this machine and save it too",
    "gone": "restore the snapshot before the job (`cachekeeper restore NAME`, or run it with `cachekeeper run`); "
    "something has removed the entries since: a cleanup, or another TORCHINDUCTOR_CACHE_DIR",
    "unsaved": "torch could not save the graph, or cannot load what it saved: its log says why (TORCH_LOGS=+inductor)",
    "off": "torch's cache is switched off: look at TORCHINDUCTOR_FX_GRAPH_CACHE, TORCHINDUCTOR_FORCE_DISABLE_CACHES "
    "and torch._inductor.config.fx_graph_cache",
    "setting": "set it as the known graphs were compiled with, or warm with the new value; for every thread in the "
    "environment (TORCHINDUCTOR_...) or with torch.compile(options=...)",
    "option": "give torch.compile the options that the known graphs were compiled with, or warm with these",
    "pass": "a pass of your own must have a uuid() that is the same in every process; when the pass is changed, warm "
    "again",
    "deterministic": "call torch.use_deterministic_algorithms alike in the warmup and the job, before the first "
    "compile",
    "matmul": "call torch.set_float32_matmul_precision alike in the warmup and the job, before the first compile",
    "default dtype": "call torch.set_default_dtype alike in the warmup and the job, before the first compile",
    "threads": "the number of CPU threads is in the key: set OMP_NUM_THREADS alike in the warmup and the job "
    "(torchrun sets it to 1)",
    "key tag": "set TORCH_COMPILE_CACHE_KEY_TAG alike in the warmup and the job",
    "tracing": "a debugging switch is in the key: take away TORCH_COMPILE_DEBUG and INDUCTOR_PROVENANCE",
    "gradients": "warm both modes: `cachekeeper warmup --mode train --mode infer`",
    "requires_grad": "warm both modes: `cachekeeper warmup --mode train --mode infer`",
    "backward": "the warmup must call backward, too: `cachekeeper warmup --mode train`",
    "autocast": "warm under the same autocast; it holds in the thread that enters it",
    "device": "a compiled graph is for one device: warm each one, as `cachekeeper warmup --device {device}`",
    "current device": "call torch.cuda.set_device before the first compile, alike in the warmup and the job",
    "dtype": "warm with this dtype, too, or cast before the call",
    "dynamic": "which sizes torch keeps open depends on the order of the calls: warm in the job's order "
    "(`cachekeeper warmup --order`), or fix it with mark_dynamic or torch.compile(dynamic=...)",
    "shape": "add the size to the warmup (`cachekeeper warmup --shape`), or keep it open with "
    "torch._dynamo.mark_dynamic",
    "stride": "call .contiguous() before the compiled function, or warm with this layout, too",
    "guard": "the graph that is kept is for other sizes (t0, t1: its open sizes, in order): warm on this side of the "
    "guard, too, or give mark_dynamic min= and max=",
    "kernel": "the kernel was changed: warm again",
    "operations": "the code was changed, or took another way through the model: warm again with this code",
    "arguments": "the code was changed: warm again with it",
    "input": "warm with these inputs, too",
    "cold": "a first run compiles everything: save it (`cachekeeper run --name NAME --snapshot-on-success`), and the "
    "next one finds it",
    "new": "warm it: add it to the plan of `cachekeeper warmup`, or save this run "
    "(`cachekeeper run --snapshot-on-success`)",
}
_OTHER = "warm again as the job runs"
_PER_THREAD = (
    "{here} sees another value than {there}: what code sets there holds in the thread that sets it alone (torch 2.12 "
    "and later). Set it in the environment or with torch.compile(options=...), or have it carried over: "
    "cachekeeper.guard.install(carry=True)"
)
_AUTOCAST_PER_THREAD = "{here} is not under the autocast of {there}: enter it in each thread"
_BYPASSES = (
    (
        "autograd_function_apply",
        "a torch.autograd.Function of your own: write it as a torch.library.custom_op, or set "
        "torch._functorch.config.autograd_cache_allow_custom_autograd_functions",
    ),
    ("freezing", "freezing is on (TORCHINDUCTOR_FREEZING): torch caches nothing of it"),
    ("cache is not enabled", _ADVICE["off"]),
    ("context_fn", "give the context_fn of activation checkpointing a `cache_hash`"),
    ("uuid", "give it a uuid() that is the same in every process"),
    ("triton 3.2", "install triton 3.2 or later"),
    ("pickle", "something that the graph holds cannot be pickled: take it out of the compiled function"),
)
_BYPASSED = {
    "aot": "torch never keeps this: it traces the graph in every process, and then finds it compiled",
    "fx": "torch never keeps this: it compiles the graph in every process",
}
_FALLBACKS = (
    (
        "limit",
        "torch gave it up after too many recompiles: raise torch._dynamo.config.recompile_limit in every thread, or "
        "keep what changes open (mark_dynamic); every device and grad mode counts",
    ),
    ("dense", "call flex_attention only compiled, in this thread, too"),
    ("symbolically trace", "two threads traced at once: install the guard (cachekeeper.guard.install)"),
)
_FALLBACK = "it runs as plain Python: mend what torch names, or leave it uncompiled on purpose (torch.compiler.disable)"


def advise(kinds: Collection[str], devices: Iterable[str], here: str = "", there: str = "") -> str:
    """What to do where graphs missed.

    Args:
        kinds: of the changes.
        devices: of the graphs.
        here, there: threads of the same process with the new value of a setting, and with the old one.
    """
    if here and "autocast" in kinds:
        return _AUTOCAST_PER_THREAD.format(here=here, there=there)
    if here:
        return _PER_THREAD.format(here=here, there=there)
    device = next((device for device in devices if device and "," not in device), "DEVICE")
    found = dict.fromkeys(text.format(device=device) for kind, text in _ADVICE.items() if kind in kinds)
    return "; ".join(list(found)[:2]) or _OTHER


def advise_bypass(cache: str, reason: str) -> str:
    """What to do where a cache was bypassed."""
    return next((text for word, text in _BYPASSES if word in reason), _BYPASSED[cache])


def advise_fallback(reason: str) -> str:
    """What to do where something ran uncompiled."""
    return next((text for word, text in _FALLBACKS if word in reason), _FALLBACK)
