"""Which variables count; the ones said not to, against torch's own configs."""

import pytest

from cachekeeper.environment import variables

HASHES = """
import hashlib, os
from torch._inductor import config as inductor
from torch._functorch import config as functorch
def digest(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()
print(digest(sorted(inductor.save_config_portable(ignore_private_configs=False).items())))
print(digest(functorch.save_config()))
"""
VALUES = {"TORCHINDUCTOR_COMPILE_THREADS": "3", "TORCHINDUCTOR_WORKER_START": "fork"}


@pytest.mark.torch
def test_variables_without_effect_have_none(run_python):
    every = {name: VALUES.get(name, "1") for name in variables._WITHOUT_EFFECT}
    assert run_python(HASHES, environ=every) == run_python(HASHES)


@pytest.mark.torch
def test_variables_that_look_harmless_and_are_not(run_python):
    inductor, functorch = run_python(HASHES).splitlines()
    log = run_python(HASHES, environ={"TORCHINDUCTOR_WORKER_LOGPATH": "/x"}).splitlines()
    assert log[0] != inductor
    assert run_python(HASHES, environ={"CI": "1"}).splitlines()[1] != functorch


def test_what_counts():
    environ = {
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
        "TORCHINDUCTOR_CACHE_DIR": "/x",
        "TRITON_CACHE_DIR": "/x",
        "TORCH_LOGS": "all",
        "DISABLE_LLVM_OPT": "1",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.7",
        "CI": "true",
        "HOME": "/root",
    }
    expected = {"CI": "set", "DISABLE_LLVM_OPT": "1", "TORCHINDUCTOR_MAX_AUTOTUNE": "1"}
    assert variables.deciding(environ) == expected
    assert variables.deciding({"CI": ""}) == {}
    assert set(variables.without_effect(environ)) == {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}


def test_what_torch_leaves_in_the_environment_of_a_process_that_compiled():
    """An address of that process: a snapshot taken by its child would fit no other."""
    assert variables.deciding({"_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR": "139872510377984"}) == {}


@pytest.mark.parametrize(
    "name", ["TORCHINDUCTOR_HF_TOKEN", "TRITON_API_KEY", "TORCH_COMPILE_SECRET", "INDUCTOR_PASSWORD", "AOT_KEY"]
)
def test_secrets_are_hashed(name):
    shown = variables.deciding({name: "s3cr3t"})[name]
    assert shown.startswith("sha256:")
    assert "s3cr3t" not in shown
    assert shown != variables.deciding({name: "other"})[name]


def test_what_is_not_a_secret():
    assert variables.deciding({"TORCH_COMPILE_CACHE_KEY_TAG": "v2"}) == {"TORCH_COMPILE_CACHE_KEY_TAG": "v2"}
    assert variables.deciding({"TORCHINDUCTOR_UNIQUE_KERNEL_NAMES": "0"}) == {"TORCHINDUCTOR_UNIQUE_KERNEL_NAMES": "0"}


def test_passwords_in_addresses():
    environ = {"TORCHINDUCTOR_REDIS_URL": "redis://user:pw@host:6379"}
    assert variables.without_effect(environ) == {"TORCHINDUCTOR_REDIS_URL": "redis://***@host:6379"}


def test_the_tables_do_not_contradict_each_other():
    assert not variables._NAMES & variables._WITHOUT_EFFECT.keys()
