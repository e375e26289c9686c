"""What ran uncompiled: how it is kept from step to step."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from cachekeeper.inside.fallbacks import Fallbacks
from cachekeeper.inside.uncompiled import Uncompiled, _code_of

LIMIT = (
    "torch._dynamo hit config.%s (%s)\n   function: %s\n   last reason: %s\n"
    'To log all recompilation reasons, use TORCH_LOGS="recompiles".\nTo diagnose recompilation issues, see %s'
)
STEP = "step (train.py:7)"


def reach_limit(fallbacks: Fallbacks) -> None:
    arguments = ("recompile_limit", 8, "'step' (/me/a b/train.py:7)", "0/7: size mismatch", "https://x")
    Uncompiled(fallbacks.note).handle(
        logging.LogRecord("torch._dynamo", logging.WARNING, "", 0, LIMIT, arguments, None)
    )


@pytest.fixture
def fallbacks() -> Fallbacks:
    return Fallbacks()


def test_the_limit_of_recompiles(fallbacks: Fallbacks):
    """torch tells of it twice; what says more comes first."""
    reach_limit(fallbacks)
    fallbacks.failed(STEP, "Dynamo recompile limit exceeded")
    said = f"{STEP} runs uncompiled: recompile_limit (8) reached; 0/7: size mismatch"
    assert fallbacks.found == (said,)
    fallbacks.clear()
    assert fallbacks.found == (f"{said} (since an earlier step)",)
    fallbacks.failed("other (train.py:9)", "no")
    assert fallbacks.found[1:] == ("other (train.py:9) runs uncompiled: no",)


def test_other_lines_of_the_log_are_no_fallbacks(fallbacks: Fallbacks):
    for text in ("", "function: f", "compiling f", "skipping f: torch._dynamo hit config.x (3)"):
        Uncompiled(fallbacks.note).handle(logging.LogRecord("torch._dynamo", logging.WARNING, "", 0, text, None, None))
    assert fallbacks.found == ()


def test_what_was_raised_did_not_run(fallbacks: Fallbacks):
    fallbacks.failed("early (train.py:1)", "for good")
    fallbacks.clear()
    fallbacks.failed(STEP, "the backend failed")
    fallbacks.raised()
    fallbacks.clear()
    assert [line.partition(" ")[0] for line in fallbacks.found] == ["early"]


def test_dense_attention_passes(fallbacks: Fallbacks):
    class Tensor:
        pass

    class FakeTensor:
        pass

    dense = Uncompiled(fallbacks.note)._dense
    dense((FakeTensor(),))
    assert fallbacks.found == ()
    dense((Tensor(),))
    dense((Tensor(),))
    (line,) = fallbacks.found
    assert "flex_attention runs uncompiled: dense" in line
    fallbacks.clear()
    assert fallbacks.found == ()


def test_calls_are_counted(fallbacks: Fallbacks):
    for _ in range(3):
        fallbacks._count_call(())
    assert fallbacks.calls == 3
    fallbacks.clear()
    assert fallbacks.calls == 0


def test_the_code_of_what_is_compiled():
    def step() -> None: ...

    class Module:
        _parameters = None

        def forward(self) -> None: ...

    assert _code_of(step) is step.__code__
    assert _code_of(Module().forward) is Module.forward.__code__
    assert _code_of(Module()) is Module.forward.__code__
    assert _code_of(SimpleNamespace()) is None
    assert _code_of(print) is None
