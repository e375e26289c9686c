"""The fingerprint of this machine, with fake installations where the real one cannot show a case."""

import dataclasses
import json
import os
import sys

import pytest

from cachekeeper import environment
from cachekeeper.environment import fingerprint, installation, intact, summary
from cachekeeper.environment.machine import identifier
from cachekeeper.models import Fact, Fingerprint

H200 = "0, NVIDIA H200, 9.0, 580.65.06, GPU-1111-a, Disabled"


def test_torch_is_not_imported(run_python):
    code = """
        import sys
        from cachekeeper.environment import fingerprint
        fingerprint()
        heavy = {"torch", "triton", "pydantic", "click", "importlib.metadata"} & set(sys.modules)
        print(sorted(heavy))
    """
    assert run_python(code) == "[]"


def test_id_is_the_same_in_every_process(run_python):
    code = "from cachekeeper.environment import fingerprint; print(fingerprint().id)"
    ids = {run_python(code, environ={"PYTHONHASHSEED": seed}) for seed in ("0", "1", "77")}
    assert len(ids) == 1
    assert ids != {run_python(code, environ={"TORCHINDUCTOR_MAX_AUTOTUNE": "1"})}


def test_facts_are_json_and_survive_it():
    found = fingerprint()
    for facts in (found.must, found.should, found.recorded):
        for fact in facts.values():
            assert json.loads(json.dumps(fact.value)) == fact.value


def test_no_torch(monkeypatch):
    monkeypatch.setattr(installation, "find_torch", lambda: None)
    found = fingerprint()
    assert found.must["torch"] == Fact(unknown="torch is not installed in this Python")
    assert found.id != fingerprint().id
    assert "torch unknown" in summary(found)


def test_a_directory_called_torch_is_not_torch(tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert installation.find_torch() is None


def test_cuda_machine(install, nvidia_smi):
    install(triton="3.6.0")
    found = fingerprint(environ=nvidia_smi(H200, H200.replace("0,", "1,", 1)))
    assert found.must["torch"].value == "2.11.0+cu130"
    assert found.must["cuda"].value == "13.0"
    assert found.must["hip"] == Fact(None)
    assert found.must["gpu"].value == [{"name": "NVIDIA H200", "capability": "sm_90"}]
    assert found.must["triton"].value == "3.6.0"
    assert found.should["gpu_count"].value == 2
    assert found.should["driver"].value == "580.65.06"
    assert summary(found) == "H200 sm_90 cu130 2.11.0"
    assert found.id == fingerprint(environ=nvidia_smi(H200)).id


def test_cpu_build_asks_no_driver(install, nvidia_smi):
    install("2.11.0+cpu", cuda=None)
    found = fingerprint(environ=nvidia_smi(H200))
    assert found.must["gpu"] == Fact(None)
    assert summary(found) == f"CPU {found.must['instruction_set'].value} 2.11.0"


def test_a_gpu_that_does_not_answer_is_unknown(install, nvidia_smi):
    install()
    found = fingerprint(environ=nvidia_smi("Failed to initialize NVML: Driver/library version mismatch", code=18))
    assert "version mismatch" in found.must["gpu"].unknown
    assert summary(found) == "GPU unknown cu130 2.11.0"


def test_source_changes_with_an_edit_but_not_with_the_installer(install):
    site = install()
    before = fingerprint().must["torch_source"]
    install()  # another bin/torchrun line in RECORD
    assert fingerprint().must["torch_source"].same(before)
    (site / "torch/_inductor/config.py").write_text("x = 1  # edited\n")
    assert not fingerprint().must["torch_source"].same(before)


def test_source_without_a_record(install):
    site = install(record=False)
    for info in site.glob("*.dist-info/RECORD"):
        info.unlink()
    before = fingerprint().must["torch_source"]
    assert before.value
    (site / "torch/new.py").touch()
    assert not fingerprint().must["torch_source"].same(before)


def test_left_over_record_of_another_version(install):
    site = install()
    before = fingerprint().must["torch_source"]
    old = site / "torch-2.1.0.dist-info"
    old.mkdir()
    (old / "RECORD").write_text("torch/version.py,sha256=AAAA,3\n")
    assert fingerprint().must["torch_source"].same(before)


def test_ptxas_is_known_by_content(install, tmp_path, nvidia_smi):
    install(triton="3.6.0")
    environ = nvidia_smi(H200)
    own = fingerprint(environ=environ).must["ptxas"]
    copy = tmp_path / "ptxas"
    copy.write_text("ptxas of 3.6.0")
    assert fingerprint(environ={**environ, "TRITON_PTXAS_PATH": str(copy)}).must["ptxas"].same(own)
    copy.write_text("another")
    assert not fingerprint(environ={**environ, "TRITON_PTXAS_PATH": str(copy)}).must["ptxas"].same(own)


@pytest.mark.parametrize(("above", "place"), [(2, "torch/bin/ptxas"), (1, "torch/_inductor/bin/ptxas")])
def test_the_ptxas_that_torch_brings_along_is_the_one_it_uses(install, nvidia_smi, above, place):
    """As torch sets TRITON_PTXAS_PATH in a job that compiles, so that a fingerprint before and after is the same."""
    site = install(triton="3.6.0")
    environ = nvidia_smi(H200)
    tasks = site / "torch/_inductor/runtime/compile_tasks.py"
    tasks.parent.mkdir(parents=True)
    tasks.write_text(f'ptxas = Path(__file__).absolute().parents[{above}] / "bin" / "ptxas"\n')
    own = fingerprint(environ=environ).must["ptxas"]
    ptxas = site / place
    ptxas.parent.mkdir()
    ptxas.write_text("ptxas of torch")
    assert fingerprint(environ=environ).must["ptxas"].same(own), "torch passes over what cannot be run"
    ptxas.chmod(0o755)
    before = fingerprint(environ=environ).must["ptxas"]
    assert before.same(fingerprint(environ={**environ, "TRITON_PTXAS_PATH": str(ptxas)}).must["ptxas"])
    assert not before.same(own)
    chosen = {**environ, "TRITON_PTXAS_PATH": str(site / "triton/backends/nvidia/bin/ptxas")}
    assert fingerprint(environ=chosen).must["ptxas"].same(own), "what is set already stays"


def test_no_triton_is_a_fact_of_its_own(monkeypatch):
    monkeypatch.setattr(installation, "find_triton", lambda: None)
    must = fingerprint().must
    assert [must[name] for name in ("triton", "triton_source", "ptxas", "libdevice")] == [Fact(None)] * 4


def test_unknown_facts_never_share_an_id():
    facts = {"torch": Fact("2.11.0"), "gpu": Fact(unknown="no driver")}
    assert identifier(facts) != identifier(facts)
    known = {"torch": Fact("2.11.0"), "gpu": Fact(None)}
    assert identifier(known) == identifier(dict(reversed(known.items())))
    assert len(identifier(known)) == 12


def test_an_edited_fingerprint_is_noticed():
    must = {"torch": Fact("2.11.0"), "gpu": Fact("NVIDIA A100")}
    made = Fingerprint(identifier(must), must, {}, {})
    assert intact(made)
    edited = dataclasses.replace(made, must={**must, "gpu": Fact("NVIDIA H200")})
    assert not intact(edited)
    assert intact(dataclasses.replace(made, must={"torch": Fact(unknown="why")}))


def test_recorded_facts_hide_secrets(monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["run", "--hf-token", "hf_abc", "--api-key=zzz", "s3://u:pw@host/x", "--seed", "1"]
    )
    command = fingerprint(environ={"WORLD_SIZE": "8", "RANK": "3"}).recorded
    assert command["command"].value == ["run", "--hf-token", "***", "--api-key=***", "s3://***@host/x", "--seed", "1"]
    assert command["job"].value == {"WORLD_SIZE": "8", "RANK": "3"}


def test_the_package_list_is_right():
    from importlib.metadata import distributions

    packages = fingerprint().recorded["packages"].value
    for distribution in distributions():
        name = distribution.metadata["Name"].lower().replace("_", "-").replace(".", "-")
        if name != "cachekeeper":
            assert packages[name] == distribution.version


def test_api_is_what_is_documented():
    for name in environment.__all__:
        assert getattr(environment, name).__doc__


@pytest.mark.parametrize("name", ["compiler", "cxx"])
def test_no_compiler(name, tmp_path):
    found = fingerprint(environ={"PATH": str(tmp_path), "CXX": "/no/such/g++"})
    assert found.should["compiler"] == Fact(None)
    assert found.must["cxx"].value == "/no/such/g++"
    assert found.must["instruction_set"].value == "none"
    assert os.environ.get("CXX") is None
