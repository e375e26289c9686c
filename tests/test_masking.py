"""Commands and tags without secrets, and with all that is none."""

from __future__ import annotations

import shlex
import time

import pytest

from cachekeeper.masking import is_secret, masked, without_secret_values, without_secrets

TEN = "A1b2C3d4E5"
HEX = "0123456789abcdef" * 4
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmVk-_x"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("command", "public"),
    [
        ("t.py --hf-token X --steps 5", "t.py --hf-token *** --steps 5"),
        ("t.py --password=X --api_key=X --lr=0.1", "t.py --password=*** --api_key=*** --lr=0.1"),
        ("env WANDB_API_KEY=X HF_TOKEN=X python t.py", "env WANDB_API_KEY=*** HF_TOKEN=*** python t.py"),
        ("t.py --wandb.key X -token X --token -aB", "t.py --wandb.key *** -token *** --token ***"),
        (
            "t.py +trainer.logger.api_key=X ~auth=X trainer.lr=1",
            "t.py +trainer.logger.api_key=*** ~auth=*** trainer.lr=1",
        ),
        ("java -Dapi.key=X -Dlr=1", "java -Dapi.key=*** -Dlr=1"),
        ("t.py --awsAccessKeyId X --hfToken=X --DB_PASS X", "t.py --awsAccessKeyId *** --hfToken=*** --DB_PASS ***"),
        ("t.py '--password=X, Y Z'", "t.py '--password=***'"),
        ("t.py --credentials X --cookie X --session X", "t.py --credentials *** --cookie *** --session ***"),
        ("curl -H 'Authorization: Bearer X' y", "curl -H 'Authorization: ***' y"),
        ('curl \'--header=Authorization: Digest a="X", b="X"\' y', "curl '--header=Authorization: ***' y"),
        ("curl -H 'Cookie: a=X; b=X' -H 'X-Api-Key: X'", "curl -H 'Cookie: ***' -H 'X-Api-Key: ***'"),
        ("curl -H Authorization: Bearer X y", "curl -H Authorization: *** *** y"),
        ("curl -H X-Api-Key: X y", "curl -H X-Api-Key: *** y"),
        ("sh -c 'python t.py --token X --lr 1'", "sh -c 'python t.py --token *** --lr 1'"),
        ("sh -c 'cd a; HF_TOKEN=X python t.py --lr 1'", "sh -c 'cd a; HF_TOKEN=*** python t.py --lr 1'"),
        ("sh -c 'curl -H \"Authorization: Bearer X\" y'", "sh -c 'curl -H \"Authorization: ***\" y'"),
        ("sbatch --export=ALL,HF_TOKEN=X,LR=1", "sbatch --export=ALL,HF_TOKEN=***,LR=1"),
    ],
)
def test_a_secret_that_is_named(command: str, public: str):
    found = without_secrets(shlex.split(command))
    assert found == tuple(shlex.split(public))
    assert without_secrets(found) == found


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ('{"api_key": "X", "lr": 0.1}', '{"api_key": "***", "lr": 0.1}'),
        ('{"a": {"password": "X\\"Y"}, "lr": 1}', '{"a": {"password": "***"}, "lr": 1}'),
        ('{\\"api_key\\": \\"X\\\\\\"Y\\", \\"lr\\": 1}', '{\\"api_key\\": \\"***\\", \\"lr\\": 1}'),
        ("{'token': 'X', 'lr': 1}", "{'token': '***', 'lr': 1}"),
        ("{api_key: X Y, lr: 1}", "{api_key: ***, lr: 1}"),
        ('{"tokens": 5, "auth_token": ["X", {"a": "X"}], "lr": 1}', '{"tokens": 5, "auth_token": ***, "lr": 1}'),
        ("lr: 1\napi_key: X\nsteps: 5", "lr: 1\napi_key: ***\nsteps: 5"),
        ("f(password='X', lr=1)", "f(password='***', lr=1)"),
        ("os.environ['HF_TOKEN'] = 'X'; f()", "os.environ['HF_TOKEN'] = '***'; f()"),
        ('{"password": "X', '{"password": "***'),
        ("https://me:X@host/a@v1", "https://***@host/a@v1"),
        ("s3://KEY:X/Y+Z@bucket/a", "s3://***@bucket/a"),
        ("redis://:X@host:6379/0", "redis://***@host:6379/0"),
        ("https://h/x?token=X&lr=1&X-Amz-Signature=X#y", "https://h/x?token=***&lr=1&X-Amz-Signature=***"),
        ("https://h/x?sv=1&sig=X&se=2", "https://h/x?sv=1&sig=***&se=2"),
    ],
)
def test_a_secret_within_a_text(text: str, public: str):
    assert masked(text) == public
    assert masked(public) == public


@pytest.mark.parametrize(
    "token",
    [
        *(f"hf_{TEN * 3}abcd", f"ghp_{TEN * 3}", f"gho_{TEN * 3}", f"github_pat_{TEN}_{TEN * 2}", f"glpat-{TEN * 2}"),
        *(f"sk-{TEN * 4}", f"sk-proj-{TEN}-{TEN}", f"sk-ant-api03-{TEN}", f"sk_live_{TEN}", f"nvapi-{TEN * 3}"),
        *(f"xoxb-123456789012-{TEN}", "AKIA1234567890ABCDEF", "ASIA1234567890ABCDEF", f"AIza{TEN * 3}abcde"),
        *(JWT, PEM, PEM.replace("\n", "\\n")),
    ],
)
def test_a_token_by_its_shape(token: str):
    assert masked(token) == "***"
    assert without_secrets(["t.py", token, f"a={token},b", f"/x/{token}/y"]) == ("t.py", "***", "a=***,b", "/x/***/y")
    assert is_secret("note", token)


def test_a_key_that_is_cut_is_masked_to_its_end():
    assert masked("a " + PEM[:40]) == "a ***"


@pytest.mark.parametrize(
    "command",
    [
        f"git checkout {HEX[:40]} {HEX}",
        "python tokenize.py tokens.txt --tokenizer gpt2 --author me --keyboard us",
        "t.py --max-token 5 --max_tokens=512 --eos-token </s> --pad_token_id=0 --n_tokens 3 tokens/sec=5",
        "t.py --sort-key name --cache_key=a --primary-key id --num_key_value_heads=8 --keys a,b --metric.key loss",
        "t.py --key-file /x/k.pem --ssh_key_path=/x --token-type bpe --session-timeout 5 --secret-name x",
        "t.py --session 3 --use-auth-token --steps 5 --token=true",
        "t.py -k X -p X /data/session/key.py /data/password.txt train.py:step 127.0.0.1:8080",
        "t.py https://host:8080/a@v1 git+https://h/a/b@main s3://bucket/x?a=1 PWD=/x a:b C:\\x",
        "t.py sk-learn-a-pipeline-with-a-long-name task-sk-x disk-1 hf_trainer hf_hub/config.json eyJust.a.name",
        "t.py --lr 1e-4 --seed=42 --config configs/a.yaml {a: 1, b: [2, 3]} secretary",
    ],
)
def test_what_is_no_secret_stays(command: str):
    assert without_secrets(command.split(" ")) == tuple(command.split(" "))


@pytest.mark.parametrize(
    ("key", "value", "secret"),
    [
        ("api_key", "X", True), ("HF_TOKEN", "X", True), ("password", "5", True), ("note", "--token X", True),
        ("url", "https://me:X@host", True), ("tokens", "512", False), ("max_token", "5", False),
        ("session", "3", False), ("commit", HEX[:40], False), ("dataset", "pile-v2", False), ("sort-key", "len", False),
    ],
)  # fmt: skip
def test_tags_that_are_secrets(key: str, value: str, secret: bool):
    assert is_secret(key, value) is secret
    assert without_secret_values({key: value}) == {key: "***" if secret else value}


HOSTILE = (
    *("a", "a.b-", "-", "+", "\\", " ", "token ", "token=", "token:", "--token ", 'token="', 'token=\\"', "token=["),
    *("token=(,", "a=token={", "://", "://a:b", ":// ", "eyJ-", "eyJaaaaaaaaaa", "sk-proj-", "hf_", "AKIA", "aA"),
    *("bearer ", "?sig=&", "-----BEGIN ", "-----BEGIN KEY", "x\n", "\x00", "\udcff="),
    *("token\\", "authorization:", "'cookie:x"),
)  # fmt: skip


def test_hostile_text_takes_linear_time():
    began = time.monotonic()
    for unit in HOSTILE:
        masked(unit * (60_000 // len(unit)))
    masked("token=" + "[" * 60_000 + "]" * 60_000)
    masked('{"token": "' + '\\"' * 60_000)
    without_secrets(["--token"] * 50_000)
    assert time.monotonic() - began < 10  # about 1 s; what is quadratic takes minutes
