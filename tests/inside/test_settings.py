"""Where two threads see torch's configuration differently; with a real torch in tests/torch_cpu."""

from __future__ import annotations

from cachekeeper.inside.settings import differences


def test_differences_are_named():
    main = {"torch._inductor.config.max_autotune": "True", "same": "1", "autocast of cpu": "True"}
    worker = {"torch._inductor.config.max_autotune": "False", "same": "1", "only here": "'x'"}
    assert differences(main, worker) == [
        "autocast of cpu: True in the main thread, not set in a worker thread",
        "only here: not set in the main thread, 'x' in a worker thread",
        "torch._inductor.config.max_autotune: True in the main thread, False in a worker thread",
    ]
    assert differences(main, dict(main)) == []
