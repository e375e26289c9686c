"""Files of keys: written, read, and refused."""

from __future__ import annotations

import base64
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cachekeeper import ownership, signing
from cachekeeper.errors import LocalDiskError, UnsafePath, UsageError
from cachekeeper.keyfiles import chosen_private_key, default_key, private_key, trusted_keys, write_key
from cachekeeper.signing import PublicKey, new_private_key, public_key

SSH_KEYGEN = shutil.which("ssh-keygen")
needs_ssh = pytest.mark.skipif(not SSH_KEYGEN, reason="there is no ssh-keygen")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a new key."""
    path = tmp_path / "key"
    write_key(path, new_private_key("me@here"))
    return path


def ssh_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    command = [str(SSH_KEYGEN), "-q", "-t", kind, "-N", passphrase, "-C", "me@ssh", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


# Files of keys


def test_a_new_key_is_for_its_owner_alone(tmp_path: Path):
    path = tmp_path / "deep" / "er" / "key"
    before = os.umask(0)
    try:
        public = write_key(path, new_private_key("me@here"))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(path.parent.iterdir()) == [path, public]
    assert public.read_text() == private_key(path).public.line + "\n"
    assert private_key(path).public.comment == "me@here"


@pytest.mark.parametrize("there", ["key", "key.pub"])
def test_nothing_is_written_over(tmp_path: Path, there: str):
    (tmp_path / there).symlink_to("nowhere")
    with pytest.raises(UsageError, match="never written over"):
        write_key(tmp_path / "key", new_private_key())
    assert [path.name for path in tmp_path.iterdir()] == [there]


@needs_ssh
def test_ssh_reads_ours(file: Path):
    said = subprocess.run([str(SSH_KEYGEN), "-lf", file], check=True, capture_output=True, text=True).stdout
    key = private_key(file).public
    assert said.split()[1] == key.fingerprint
    line = subprocess.run([str(SSH_KEYGEN), "-y", "-f", file], check=True, capture_output=True, text=True).stdout
    assert public_key(line) == key


@needs_ssh
def test_a_key_of_ssh_signs(tmp_path: Path):
    path = ssh_key(tmp_path / "id_ed25519")
    key = private_key(path)
    assert trusted_keys(f"{path}.pub") == (key.public,) and key.public.comment == "me@ssh"
    assert key.public.verifies(key.sign(b"x"), b"x")


@needs_ssh
@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_other_types_are_refused(tmp_path: Path, kind: str):
    path = ssh_key(tmp_path / "key", kind)
    with pytest.raises(UsageError, match="a key of another type"):
        private_key(path)
    with pytest.raises(UsageError, match="a line that is no key") as caught:
        trusted_keys(f"{path}.pub")
    assert "only ssh-ed25519 keys are read" in caught.value.facts[0]
    with pytest.raises(UsageError, match="the key given has a line that is no key"):
        trusted_keys(path.with_suffix(".pub").read_text())


@needs_ssh
def test_a_passphrase_needs_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = ssh_key(tmp_path / "key", passphrase="open sesame")
    with open(os.devnull) as nothing:
        for stdin in (nothing, None):
            monkeypatch.setattr(sys, "stdin", stdin)
            with pytest.raises(UsageError, match="has a passphrase, and there is no terminal"):
                private_key(path)


@needs_ssh
@pytest.mark.parametrize(("said", "right"), [("open sesame", True), ("close sesame", False)])
def test_a_passphrase_is_asked_for_on_a_terminal(tmp_path: Path, said: str, right: bool):
    pytest.importorskip("bcrypt")
    path = ssh_key(tmp_path / "key", passphrase="open sesame")
    code = f"from pathlib import Path; from cachekeeper.keyfiles import private_key; private_key(Path({str(path)!r}))"
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", code])
    seen = b""
    while b"Passphrase of" not in seen:
        seen += os.read(terminal, 1000)
    os.write(terminal, said.encode() + b"\n")
    status = os.waitpid(child, 0)[1]
    os.close(terminal)
    assert (os.waitstatus_to_exitcode(status) == 0) == right


def test_a_key_that_others_can_read_is_refused(file: Path):
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(LocalDiskError, match="others may read or write") as caught:
            private_key(file)
        assert caught.value.facts == (f"mode {mode:04o}",)


def test_a_key_of_somebody_else_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(LocalDiskError, match="is somebody else's"):
        private_key(file)


def test_what_is_no_private_key(tmp_path: Path, file: Path):
    with pytest.raises(UsageError, match="is a public key") as caught:
        private_key(file.with_name("key.pub"))
    assert str(file) in caught.value.hint
    data = file.read_bytes()
    for content in (b"", b"garbage", data[: len(data) // 2], b"-----BEGIN PRIVATE KEY-----\nAAAA\n", b"\xff" * 9):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="cannot read the signing key"):
            private_key(file)
    file.write_bytes(b"x" * (1 << 20))
    with pytest.raises(UsageError, match="too long"):
        private_key(file)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UsageError, match="is no file"):
            private_key(path)
    with pytest.raises(UsageError, match="there is no signing key") as caught:
        private_key(tmp_path / "none")
    assert "cachekeeper keygen" in caught.value.hint


# Trusted keys


def test_one_key_as_text_and_in_a_file(file: Path):
    public = private_key(file).public
    for value in (public.line, f"{public.line}\n", f"{file}.pub", file.with_name("key.pub")):
        assert trusted_keys(value) == (public,)


def test_several_keys_in_a_file(tmp_path: Path):
    keys = [new_private_key(f"k{number}").public for number in range(3)]
    path = tmp_path / "trusted"
    path.write_text("# those who release\n\n" + "\r\n".join(key.line for key in [*keys, keys[0]]) + "\n")
    assert trusted_keys(path) == tuple(keys)
    assert trusted_keys("\n".join(key.line for key in keys)) == tuple(keys)


def cut(line: str) -> str:
    kind, text = line.split()[:2]
    return f"{kind} {base64.b64encode(base64.b64decode(text)[:-1]).decode()}"


@pytest.mark.parametrize(
    "bad",
    [
        "garbage",
        "ssh-ed25519",
        "ssh-ed25519 !!!!",
        "ssh-ed25519 AAAA",
        "sk-ssh-ed25519@openssh.com AAAA me",
        "restrict {line}",
        "{line}{line}",
        "ssh-ed25519 {cut}",
    ],
)
def test_one_bad_line_and_nothing_is_trusted(tmp_path: Path, bad: str):
    line = PublicKey(b"\x07" * 32).line
    path = tmp_path / "trusted"
    path.write_text(f"{line}\n" + bad.format(line=line, cut=cut(line).split()[1]) + "\n")
    with pytest.raises(UsageError, match="has a line that is no key") as caught:
        trusted_keys(path)
    assert caught.value.facts[0].startswith("line 2: ")


def test_what_is_no_file_of_keys(tmp_path: Path, file: Path):
    with pytest.raises(UsageError, match="is a private key"):
        trusted_keys(file)
    with pytest.raises(UsageError, match="there is no public key"):
        trusted_keys(tmp_path / "none")
    with pytest.raises(UsageError, match="is no file"):
        trusted_keys(tmp_path)
    for empty in ("", "  \n"):
        with pytest.raises(UsageError, match="is empty"):
            trusted_keys(empty)
    path = tmp_path / "trusted"
    for content, message in ((b"# nobody\n", "holds no key"), (b"", "holds no key"), (b"\xff\xfe", "it is no text")):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=message):
            trusted_keys(path)


def test_trusted_keys_that_others_can_change_are_none(file: Path, monkeypatch: pytest.MonkeyPatch):
    public = file.with_name("key.pub")
    file.parent.chmod(0o777)
    with pytest.raises(UnsafePath, match=r"the directory of trusted keys .* is not safe: every user may write into it"):
        trusted_keys(public)
    for link in (Path("link"), file.parent / "link"):
        monkeypatch.chdir(Path(tempfile.mkdtemp(dir=file.parent.parent)))
        link.symlink_to(public)
        with pytest.raises(UnsafePath):
            trusted_keys(link)
    file.parent.chmod(0o1777)
    assert trusted_keys(public)
    file.parent.chmod(0o700)
    public.chmod(0o666)
    with pytest.raises(UnsafePath, match="everybody may write the file of trusted keys"):
        trusted_keys(public)
    public.chmod(0o664)
    assert trusted_keys(public)
    monkeypatch.setattr(ownership, "trusted_owners", lambda: frozenset({public.stat().st_uid + 1}))
    with pytest.raises(UnsafePath, match="somebody else owns the file of trusted keys"):
        trusted_keys(public)
    assert trusted_keys(public_key_text(file))


def public_key_text(file: Path) -> str:
    return file.with_name("key.pub").read_text()


# Settings, and no library


def test_which_key_signs(file: Path, own_environment: Path, monkeypatch: pytest.MonkeyPatch):
    assert chosen_private_key(None) is None
    with pytest.raises(UsageError, match=r"there is no signing key .*/\.config/cachekeeper/signing_key"):
        chosen_private_key("")
    mine = new_private_key()
    write_key(default_key(), mine)
    assert chosen_private_key("").public == mine.public
    assert chosen_private_key(None) is None
    monkeypatch.setenv("CACHEKEEPER_SIGNING_KEY", str(file))
    configured = private_key(file).public
    assert chosen_private_key(None).public == chosen_private_key("").public == configured
    assert chosen_private_key("~/.config/cachekeeper/signing_key").public == mine.public
    monkeypatch.setenv("XDG_CONFIG_HOME", str(file.parent))
    assert default_key() == file.parent / "cachekeeper" / "signing_key"


def test_without_the_library_nothing_passes(file: Path, monkeypatch: pytest.MonkeyPatch):
    public = private_key(file).public
    for module in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for work in (
        signing.require_library,
        new_private_key,
        lambda: private_key(file),
        lambda: public.verifies(b"", b""),
    ):
        with pytest.raises(UsageError, match="need the package `cryptography`") as caught:
            work()
        assert "pip install 'cachekeeper[sign]'" in caught.value.hint


def test_a_bare_name_that_is_not_here_is_looked_for_where_keygen_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write_key(default_key(), new_private_key())
    there = tmp_path / "cachekeeper" / "signing_key.pub"
    with pytest.raises(UsageError, match=r"no public key signing_key\.pub") as caught:
        trusted_keys("signing_key.pub")
    assert caught.value.hint == f"do you mean {there}?"
    with pytest.raises(UsageError) as caught:
        trusted_keys("other.pub")
    assert caught.value.hint.startswith("give a .pub file")
    with pytest.raises(UsageError) as caught:
        trusted_keys("elsewhere/signing_key.pub")
    assert caught.value.hint.startswith("give a .pub file")
