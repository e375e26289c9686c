"""The model hash: the same for the same model however spelled, another for another model."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper.environment import model_hash
from cachekeeper.environment.model import _VOLATILE, canonical
from cachekeeper.errors import UsageError

KEYS = st.text(max_size=8).filter(lambda key: key not in _VOLATILE and key not in ("dtype", "torch_dtype"))
# Beyond 2**53 a number spelled as a float is another number.
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
CONFIGS = st.dictionaries(KEYS, VALUES, max_size=5)


@pytest.fixture
def write(tmp_path):
    def write(text, name="config.json"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def respelled(value, draw):
    """The same value with keys in another order and numbers in another spelling."""
    if isinstance(value, dict):
        return {key: respelled(value[key], draw) for key in draw(st.permutations(list(value)))}
    if isinstance(value, list):
        return [respelled(item, draw) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if draw(st.booleans()) else value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


@given(CONFIGS, st.data())
def test_spelling_does_not_count(config, data):
    text = json.dumps(respelled(config, data.draw), indent=data.draw(st.sampled_from([None, 2])))
    assert canonical(json.loads(text), set()) == canonical(config, set())


def typed(value):
    """Equal only where JSON says the same: Python's True == 1 is not."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return (isinstance(value, bool), value)


@given(CONFIGS, CONFIGS)
def test_different_configs_differ(one, other):
    assert (canonical(one, set()) == canonical(other, set())) == (typed(one) == typed(other))


@given(CONFIGS, KEYS, SCALARS, SCALARS)
def test_one_changed_value_is_seen(config, key, before, after):
    same = typed(before) == typed(after)
    assert (canonical({**config, key: before}, set()) == canonical({**config, key: after}, set())) == same


@pytest.mark.parametrize("pair", [("1", "1.0"), ("1", "1e0"), ("1e-5", "0.00001"), ("0", "-0.0"), ("100", "1E2")])
def test_numbers_in_a_file(write, pair):
    hashes = {model_hash(write(f'{{"n": {text}}}')).sha256 for text in pair}
    assert len(hashes) == 1


@pytest.mark.parametrize("pair", [("1", "true"), ("1", '"1"'), ("0", "null"), ("1", "1.0000001"), ("[]", "{}")])
def test_other_values_in_a_file(write, pair):
    hashes = {model_hash(write(f'{{"n": {text}}}')).sha256 for text in pair}
    assert len(hashes) == 2


def test_what_transformers_writes_about_itself(write):
    plain = model_hash(write('{"hidden_size": 64, "text_config": {"layers": 2}}'))
    noisy = model_hash(
        write(
            '{"hidden_size": 64, "transformers_version": "5.0", "_name_or_path": "/data/x",'
            ' "text_config": {"layers": 2, "_commit_hash": null}}'
        )
    )
    assert noisy.sha256 == plain.sha256
    assert noisy.ignored == ("_commit_hash", "_name_or_path", "transformers_version")
    assert plain.ignored == ()


def test_dtype_has_two_names(write):
    texts = ('{"dtype": "bfloat16"}', '{"torch_dtype": "bfloat16"}', '{"torch_dtype": "torch.bfloat16"}')
    assert len({model_hash(write(text)).sha256 for text in texts}) == 1
    assert model_hash(write('{"dtype": "float16"}')).sha256 != model_hash(write(texts[0])).sha256
    both = model_hash(write('{"dtype": "float16", "torch_dtype": "bfloat16"}')).sha256
    assert both != model_hash(write(texts[0])).sha256


def test_toml(write):
    toml = model_hash(write("layers = 2\n[attention]\nheads = 8.0\n", "model.toml"))
    assert toml.sha256 == model_hash(write('{"attention": {"heads": 8}, "layers": 2}')).sha256
    dated = model_hash(write("day = 2026-01-02\n", "model.toml")).sha256
    assert dated != model_hash(write('day = "2026-01-02"\n', "model.toml")).sha256


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ('{"a": NaN}', "c.json", "NaN"),
        ('{"a": -Infinity}', "c.json", "Infinity"),
        ('{"a": 1e999}', "c.json", "not finite"),
        ('{"a": 1, "a": 2}', "c.json", "twice"),
        ('{"a": ', "c.json", "line 1"),
        ("", "c.json", "line 1"),
        ("[1]", "c.json", "no keys"),
        (b"\xff\xfe\x00", "c.json", "not text"),
        ("[" * 100_000, "c.json", "nested"),
        ("a = nan", "c.toml", "not finite"),
        ("a = 1\na = 2", "c.toml", "overwrite"),
        ("a: 1", "c.yaml", ".yaml"),
        ("{}", "config", "no ending"),
    ],
)
def test_what_is_refused(write, text, name, reason):
    with pytest.raises(UsageError) as caught:
        model_hash(write(text, name))
    assert reason in " ".join(caught.value.facts)
    assert caught.value.hint


def test_a_missing_file():
    with pytest.raises(UsageError) as caught:
        model_hash(Path("/no/such/config.json"))
    assert caught.value.facts == ("file    /no/such/config.json", "reason  No such file or directory")


def test_sources(tmp_path):
    package = tmp_path / "package"
    (package / "sub" / "__pycache__").mkdir(parents=True)
    (package / "a.py").write_text("x = 1\n")
    (package / "sub" / "b.py").write_text("y = 1\n")
    before = model_hash(None, [package])
    assert before.sources == (str(package),)
    (package / "notes.txt").touch()
    (package / "sub" / "__pycache__" / "b.py").touch()
    assert model_hash(None, [package]).sha256 == before.sha256
    moved = package.rename(tmp_path / "elsewhere")
    assert model_hash(None, [moved]).sha256 == before.sha256
    (moved / "sub" / "b.py").write_text("y = 2\n")
    edited = model_hash(None, [moved]).sha256
    assert edited != before.sha256
    (moved / "sub" / "b.py").rename(moved / "sub" / "c.py")
    assert model_hash(None, [moved]).sha256 not in (edited, before.sha256)


def test_a_source_that_is_not_there(tmp_path):
    for path in (tmp_path, tmp_path / "missing.py"):
        with pytest.raises(UsageError, match="source"):
            model_hash(None, [path])
