"""Which GPUs are visible, and asking for them."""

import shutil
import subprocess

import pytest

from cachekeeper.environment import gpu, kfd, nvml
from cachekeeper.environment.nvml import Device
from cachekeeper.models import Fact

CUDA, NONE = Fact("13.0"), Fact(None)
A100 = Device("NVIDIA A100", "sm_80", "GPU-aaaa-1")
H200 = Device("NVIDIA H200", "sm_90", "GPU-bbbb-2")
SAME = [Device("NVIDIA H200", "sm_90", f"GPU-{n}{n}{n}") for n in range(4)]


def numbers(devices, value, **environ):
    chosen = gpu.visible(devices, {"CUDA_VISIBLE_DEVICES": value, **environ})
    return [devices.index(device) for device in chosen]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", [0]),
        ("2,1", [2, 1]),
        (" 2 , 1", [2, 1]),
        ("", []),
        ("-1", []),
        ("0,-1,1", [0]),
        ("0,9,1", [0]),
        ("1gpu2,2ampere", [1, 2]),
        ("1,1", []),
        ("NoDevFiles", []),
        ("GPU-222,GPU-0", [2, 0]),
        ("GPU-222,GPU-222", []),
        ("GPU-222,GPU-x,GPU-0", [2]),
        ("GPU-", []),
    ],
)
def test_visible_devices(value, expected):
    assert numbers(SAME, value) == expected


def test_all_are_visible_where_nothing_is_said():
    assert gpu.visible(SAME, {}) == SAME


def test_mixed_models_need_a_known_order():
    mixed = [A100, H200]
    with pytest.raises(gpu._Hidden, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        gpu.visible(mixed, {})
    assert numbers(mixed, "1,0", CUDA_DEVICE_ORDER="PCI_BUS_ID") == [1, 0]
    assert numbers(mixed, "GPU-bbbb") == [1]
    described = gpu.described([H200, A100])
    assert [model["name"] for model in described] == ["NVIDIA H200", "NVIDIA A100"]
    assert gpu.described([H200, H200]) == gpu.described([H200])
    assert gpu.described([]) is None


def test_mig_is_not_guessed():
    with pytest.raises(gpu._Hidden, match="MIG"):
        gpu.visible(SAME, {"CUDA_VISIBLE_DEVICES": "MIG-1234"})
    with pytest.raises(gpu._Hidden, match="MIG"):
        gpu.visible([Device("NVIDIA H200", "sm_90", "GPU-1", mig=True)], {})


def test_mig_through_nvidia_smi(nvidia_smi):
    environ = nvidia_smi("0, NVIDIA H200, 9.0, 580.65.06, GPU-1, Enabled")
    assert "MIG" in gpu.gpu_facts(environ, cuda=CUDA, hip=NONE)["gpu"].unknown


def test_no_gpu(nvidia_smi):
    facts = gpu.gpu_facts(nvidia_smi("No devices were found", code=6), cuda=CUDA, hip=NONE)
    assert facts["gpu"] == Fact(None)
    assert facts["gpu_count"] == Fact(0)


def test_driver_programs_without_a_gpu(nvidia_smi):
    environ = nvidia_smi("NVIDIA-SMI has failed", code=9, files=())
    assert gpu.gpu_facts(environ, cuda=CUDA, hip=NONE)["gpu"] == Fact(None)


def test_a_gpu_and_nobody_to_ask(nvidia_smi, tmp_path):
    nvidia_smi()
    fact = gpu.gpu_facts({"PATH": str(tmp_path)}, cuda=CUDA, hip=NONE)["gpu"]
    assert "nvidia0" in fact.unknown


def test_nonsense_is_not_believed(nvidia_smi):
    fact = gpu.gpu_facts(nvidia_smi("0, NVIDIA H200, [N/A], 580, GPU-1"), cuda=CUDA, hip=NONE)["gpu"]
    assert "not understood" in fact.unknown


NVML = """
#include <string.h>
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Other"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlSystemGetDriverVersion(char *b, unsigned n) { strncpy(b, "580.65.06", n); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(0x700000000000 + i); return 0; }
int nvmlDeviceGetName(void *h, char *b, unsigned n) { strncpy(b, "NVIDIA H200", n); return 0; }
int nvmlDeviceGetUUID(void *h, char *b, unsigned n)
{ strncpy(b, h == (void *)0x700000000001 ? "GPU-one" : "GPU-zero", n); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) { *a = 9; *b = 0; return 0; }
int nvmlDeviceGetMigMode(void *h, unsigned *a, unsigned *b) { return 3; }
"""


@pytest.fixture
def fake_nvml(tmp_path, monkeypatch):
    if shutil.which("gcc") is None:
        pytest.skip("needs a C compiler to build a fake NVML")

    def build(code):
        library = tmp_path / f"libfake{code}.so"
        source = tmp_path / "nvml.c"
        source.write_text(NVML)
        subprocess.run(["gcc", "-shared", "-fPIC", f"-DINIT={code}", "-o", library, source], check=True)
        monkeypatch.setattr(nvml, "LIBRARIES", ("libno-such.so", str(library)))

    return build


def test_nvml(fake_nvml):
    fake_nvml(0)
    facts = gpu.gpu_facts({"CUDA_VISIBLE_DEVICES": "GPU-one"}, cuda=CUDA, hip=NONE)
    assert facts["gpu"].value == [{"name": "NVIDIA H200", "capability": "sm_90"}]
    assert facts["gpu_count"] == Fact(1)
    assert facts["driver"] == Fact("580.65.06")


def test_nvml_fails_and_nvidia_smi_answers(nvidia_smi, fake_nvml):
    environ = nvidia_smi("0, NVIDIA H200, 9.0, 580.65.06, GPU-1, Disabled")
    fake_nvml(9)
    assert gpu.gpu_facts(environ, cuda=CUDA, hip=NONE)["driver"] == Fact("580.65.06")


def test_nvml_fails_and_nobody_else_is_there(nvidia_smi, fake_nvml, tmp_path):
    nvidia_smi()
    fake_nvml(9)
    fact = gpu.gpu_facts({"PATH": str(tmp_path / "nothing")}, cuda=CUDA, hip=NONE)["gpu"]
    assert "Driver Not Loaded" in fact.unknown


def test_amd(tmp_path, monkeypatch):
    nodes = tmp_path / "nodes"
    for number, target in enumerate((0, 90402, 90402)):
        (nodes / str(number)).mkdir(parents=True)
        (nodes / str(number) / "properties").write_text(f"cpu_cores_count 0\ngfx_target_version {target}\n")
    monkeypatch.setattr(kfd, "NODES", nodes)
    facts = gpu.gpu_facts({}, cuda=NONE, hip=Fact("6.4"))
    assert facts["gpu"].value == [{"name": "gfx942", "capability": "gfx942"}]
    assert facts["gpu_count"] == Fact(2)
    hidden = gpu.gpu_facts({"HIP_VISIBLE_DEVICES": "1"}, cuda=NONE, hip=Fact("6.4"))
    assert "HIP_VISIBLE_DEVICES" in hidden["gpu"].unknown


def test_gfx_names_are_hexadecimal():
    assert kfd._target("gfx_target_version 90010\n") == "gfx90a"
    assert kfd._target("gfx_target_version 110001\n") == "gfx1101"
