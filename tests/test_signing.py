"""What keys sign."""

from __future__ import annotations

from cachekeeper.signing import PublicKey, new_private_key, statement


def test_the_bytes_that_are_signed_never_change():
    """They are part of the format: whoever changes them makes every signature void."""
    document = {"snapshot": "ab", "name": "b\u00e4r", "number": 7}
    expected = b'cachekeeper signature 1: name\n{"name":"b\\u00e4r","number":7,"snapshot":"ab"}'
    assert statement("name", document) == expected


def test_only_this_key_and_only_this_statement():
    key, other = new_private_key(), new_private_key()
    signature = key.sign(b"one")
    assert key.public.verifies(signature, b"one")
    assert not key.public.verifies(signature, b"two")
    assert not other.public.verifies(signature, b"one")
    assert not key.public.verifies(signature[:-1], b"one")
    assert not key.public.verifies(b"", b"one")
    assert not PublicKey(b"\xff" * 32).verifies(signature, b"one")


def test_a_signature_as_rfc_8032_has_it():
    """Test 2 of section 7.1."""
    public = PublicKey(bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"))
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert public.verifies(signature, b"\x72") and not public.verifies(signature, b"\x73")
