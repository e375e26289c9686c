"""Secrets in files: what is one, what only looks like one, and that real caches have none."""

from __future__ import annotations

import gzip
import os
import random
import string
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.masking.tokens import LONGEST, Search

ALNUM = string.ascii_letters + string.digits


def made(length: int, letters: str = ALNUM, seed: int = 7) -> str:
    """Letters as dice give them."""
    return "".join(random.Random(seed).choices(letters, k=length))


WORD = ALNUM + "_-"
TOKENS = {
    "a Hugging Face token": "hf_" + made(34),
    "a GitHub token": "ghp_" + made(36),
    "a GitLab token": "glpat-" + made(20, WORD),
    "an OpenAI key": "sk-proj-" + made(74, WORD) + "T3BlbkFJ" + made(74, WORD),
    "an Anthropic key": "sk-ant-api03-" + made(93, WORD) + "AA",
    "an AWS access key": "AKIA" + made(16, string.ascii_uppercase + "234567"),
    "a Google API key": "AIza" + made(35, WORD),
    "an NVIDIA key": "nvapi-" + made(64, WORD),
    "a Slack token": "xoxb-" + made(12, string.digits) + "-" + made(13, string.digits) + "-" + made(24),
    "a PyPI token": "pypi-AgE" + made(160, WORD),
    "a JSON web token": ".".join(["eyJ" + made(33), "eyJ" + made(700, WORD), made(43, WORD)]),
    "a private key": "-----BEGIN PRIVATE KEY-----\n" + made(64, ALNUM + "+/") + "\n" + made(64, ALNUM + "+/"),
    "a password in a URL": "redis://worker:" + made(12) + "@cache.internal:6379/0",
}


def found(text: str | bytes, environ: dict[str, str] | None = None) -> list[str]:
    data = bytearray(text.encode() if isinstance(text, str) else text)
    return Search(environ or {}).kinds(data, [(0, len(data))]).get(0, [])


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize("around", ["{}", 'token = "{}"  # mine', "\x00\x8c{}\x94.", "a={}\n", "-{}'"])
def test_a_token_is_found_by_its_kind(kind: str, around: str):
    assert found(around.format(TOKENS[kind])) == [kind]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("a GitHub token", "github_pat_" + made(22) + "_" + made(59)),
        ("an OpenAI key", "sk-" + made(20) + "T3BlbkFJ" + made(20)),
        (
            "a private key",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtz",
        ),
        ("a private key", "x = '-----BEGIN RSA PRIVATE KEY-----\\nMIIEpAIBAAKCAQEA" + made(48) + "'"),
        ("a password in a URL", "https://:" + made(20) + "@host/x"),
        ("a password in a URL", "x://" + "u" * 128 + ":" + made(128) + "@host"),
        ("a password in a URL", "see @a, http://b:1/@c and x://u:" + made(20) + "@host"),
    ],
)
def test_other_forms(kind: str, text: str):
    assert found(text) == [kind]


@pytest.mark.parametrize("kind", TOKENS)
def test_nothing_of_a_token_is_told(kind: str):
    told = " ".join(found(TOKENS[kind]))
    assert not any(TOKENS[kind][at : at + 4] in told for at in range(len(TOKENS[kind]) - 4))


@pytest.mark.parametrize(
    "text",
    [
        *("hf_" + "x" * 34, "hf_" + "YOUR_TOKEN" * 3, "hf_" + made(20), "hf_hub_download", "ghp_" + "0123456789" * 4),
        *("AKIAIOSFODNN7EXAMPLE", "AKIA" + "A" * 16, made(30, string.ascii_uppercase) + TOKENS["an AWS access key"]),
        *("sk-learn-" + made(40), "sk-ant-api03-..." + made(4), "nvapi-" + "x" * 64, "AIza" + made(60)),
        *("-----BEGIN PRIVATE KEY-----\n...", "-----BEGIN PUBLIC KEY-----\n" + made(64), "eyJhbGciOiJIUzI1NiJ9"),
        *("postgresql://user:password@localhost/db", "https://user:${PASSWORD1}@host", "http://host:8080/a@1.2.3"),
        *("redis://user:" + "example123" + "@host", "git+https://github.com/a/b@v1.2.3", "http://a.b:12345678/@x"),
        *("sha256 " + made(64, "0123456789abcdef"), made(52, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")),
    ],
)  # fmt: skip
def test_placeholders_examples_and_hashes_are_none(text: str):
    assert found(text) == []


# Values of this process's own variables


def test_the_value_of_a_secret_variable_is_found_and_named():
    value = made(40, "0123456789abcdef")
    assert found(f"key = '{value}'", {"WANDB_API_KEY": value}) == ["the value of WANDB_API_KEY"]
    assert found(b"\xff" + value.encode(), {"DB_PASSWORD": value}) == ["the value of DB_PASSWORD"]
    assert found("key = ''", {"WANDB_API_KEY": value}) == []


@pytest.mark.parametrize(
    "value", ["abcdef0123456789secret", "0123456789abcdef0123456789abcdef01234567", "aabbaabbaabbcdefgh"]
)
def test_the_exact_value_is_found_though_it_looks_like_a_sequence(value: str):
    assert found(f"key = '{value}'", {"DB_PASSWORD": value}) == ["the value of DB_PASSWORD"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("HF_TOKEN", "121212121212"), ("API_KEY", "your-api-key-here"), ("API_KEY", "example-of-a-key")),
        *(("HF_TOKEN", "short"), ("HF_TOKEN", "x" * 40), ("PASSWORD", "changeme-please"), ("LR", made(20))),
        *(("SSH_KEY", str(Path(__file__))), ("TORCH_COMPILE_STICKY_PGO_KEY", "llama-pretrain-8b")),
        *(("CACHEKEEPER_SIGNING_KEY", made(40)), ("HF_TOKEN_PATH", made(20)), ("API_KEY", "")),
    ],
)
def test_values_that_are_not_looked_for(name: str, value: str):
    assert found(f"a = '{value}' b = 'xx'", {name: value}) == []


# Texts in a buffer


def test_each_text_has_its_own():
    texts = [TOKENS["a GitLab token"], "nothing", TOKENS["an NVIDIA key"] + " " + TOKENS["a GitLab token"]]
    data, spans = bytearray(b"before"), []
    for text in texts:
        spans.append((len(data), len(data) + len(text)))
        data += text.encode()
    assert Search({}).kinds(data, spans) == {0: ["a GitLab token"], 2: ["a GitLab token", "an NVIDIA key"]}
    data += b"free to grow again"


def test_what_lies_between_texts_is_passed_over():
    """Files that are not looked at lie in the same buffer."""
    token, value = TOKENS["a Hugging Face token"].encode(), made(30)
    data = bytearray(b"one" + token + value.encode() + b"two")
    spans = [(0, 3), (len(data) - 3, len(data))]
    assert Search({"HF_TOKEN": value}).kinds(data, spans) == {}
    assert Search({}).kinds(bytearray(), []) == {} and Search({}).kinds(bytearray(), [(0, 0)]) == {}


def test_a_token_never_spans_two_texts():
    token = TOKENS["a GitHub token"].encode()
    data = bytearray(token)
    assert Search({"GITHUB_TOKEN": token.decode()}).kinds(data, [(0, 20), (20, len(token))]) == {}


@pytest.mark.parametrize("kind", sorted(TOKENS.keys() - {"a password in a URL"}))
def test_what_begins_before_the_first_text_is_no_token_and_hides_none(kind: str):
    token = TOKENS[kind].encode()
    data = bytearray(token + b" " + token)
    assert Search({}).kinds(data, [(1, len(token)), (len(token), len(data))]) == {1: [kind]}


@pytest.mark.parametrize("distance", [10, LONGEST - 100, LONGEST + 100, 5000, 100_000])
def test_a_token_after_what_only_begins_like_one(distance: int):
    for kind, token in TOKENS.items():
        assert kind in found(token[:9] + " " * distance + token), kind


def test_hostile_text_takes_linear_time():
    """What is quadratic takes hours."""
    for token in TOKENS.values():
        for length in (3, 6, 9, 20, 60):
            found(token[:length] * (40_000 // length))
            found((token[:length] + " ") * (40_000 // length))


# What is there for real


GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("store", "name"), [("pairs", "tuned-1"), ("pairs", "infer"), ("pairs", "cpu"), ("store-v1", "team/first")]
)
def test_real_caches_have_none(store: str, name: str, tmp_path: Path):
    """Of jobs on GPUs and CPUs, kept for other tests."""
    cachekeeper.restore(name, cache_dir=tmp_path, store=GOLDEN / store, allow_mismatch=True)
    assert secrets_below(tmp_path, 10) == {}


def test_sources_have_none():
    """Graphs and modules as torch writes them; and our own, full of names of secrets."""
    assert secrets_below(GOLDEN / "sources", 9) == {}
    assert secrets_below(Path(cachekeeper.__file__).parent, 100) == {}


def secrets_below(directory: Path, least: int) -> dict[Path, list[str]]:
    paths = [path for path in directory.rglob("*") if path.is_file()]
    assert len(paths) >= least
    texts = {
        path: gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        for path in paths
        if (data := path.read_bytes())
    }
    return {path: kinds for path, text in texts.items() if (kinds := found(text, dict(os.environ)))}
