"""Commands and tags without secrets: what is kept of them, and shown. Standard library only: jobs import this.

A secret is known by the name that it has, or by its own shape. The value of a short option such as `-k X`, and a
password without a name, cannot be known: they stay. A hash, a path and a number have no shape of a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

HIDDEN = "***"
_NO, _WEAK, _STRONG = 0, 1, 2
_LONGEST_NAME = 200

# Whoever makes these tokens gives them a beginning by which they can be found; each part is bounded, or begins where no
# word goes on, so that hostile text takes no more than linear time.
_SHAPES = re.compile(
    r"""
      :// (?P<user> [^/\s"'?#]{1,8192} | [^\s"'/:@]{1,256} : (?!\d{1,5}(?:[/?\#]|$)) [^\s"'@]{0,256} ) @
    | (?<![A-Za-z0-9]) (?:
        hf_[A-Za-z0-9]{16,} | api_org_[A-Za-z0-9]{16,}
      | gh[oprsu]_[A-Za-z0-9]{16,} | github_pat_\w{16,} | glpat-[\w-]{16,}
      | sk-(?:admin|ant|or|proj|svcacct)-[\w-]{10,} | sk-[A-Za-z0-9]{20,} | [rs]k_(?:live|test)_[A-Za-z0-9]{10,}
      | xox[abeoprs]-[\w-]{8,} | xapp-[\w-]{8,}
      | (?:AKIA|ASIA)[A-Z0-9]{16} | AIza[\w-]{30,} | ya29\.[\w-]{16,}
      | nvapi-[\w-]{16,} | npm_[A-Za-z0-9]{30,} | pypi-Ag[\w-]{16,} | gsk_[A-Za-z0-9]{30,} | r8_[A-Za-z0-9]{30,}
      )
    | (?<![\w.-]) eyJ[\w-]{8,} (?: \.[\w-]* ){1,4}
    | -----BEGIN\ [A-Z0-9\ ]{0,40}KEY.*? (?: -----END\ [A-Z0-9\ ]{0,40}KEY[A-Z\ ]{0,10}----- | \Z )
    | \b (?P<scheme> (?i:bearer) \s+ ) [\w.~+/=-]{8,}
    """,
    re.VERBOSE | re.DOTALL,
)
# A name and what is between it and its value: `--token X`, `token=X`, `"token": "X"`, `['token'] = X`.
_NAMED = re.compile(r"""(?<![\w.-])(?P<name>[\w.-]+)(?P<between>(?:\\*["'])?\]?\s*[=:]>?\s*|\s+)""")
_QUOTE = re.compile(r"""\\*["']""")
_BRACKET = re.compile(r"[][{}()]")
_END = {
    "option": re.compile(r"""[\s"']|\Z"""),
    "=": re.compile(r"""[\s"',;&)}\]]|\Z"""),
    ":": re.compile(r"""[\r\n"',)}\]]|\Z"""),
    '"': re.compile(r'[\r\n"]|\Z'),
    "'": re.compile(r"[\r\n']|\Z"),
    "line": re.compile(r"[\r\n]|\Z"),
    "all": re.compile(r"\Z"),
}
# Of Hydra: `+a=b`, `++a=b`, `~a=b`.
_PREFIX = "+~"
_HEADERS = ("authorization", "cookie")
_OPTION = re.compile(r"--[A-Za-z].*|-[A-Za-z](?:=.*)?", re.DOTALL)
_ASKING = re.compile(r"-[\w.-]+|[\w.-]+:")
_SCHEMES = ("basic", "bearer", "digest", "negotiate", "token")
_HARMLESS_VALUE = re.compile(r"[+-]?\d{1,9}(?:\.\d{0,9})?|true|false|none|null|yes|no|on|off|", re.IGNORECASE)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_STRONG_NAME = re.compile(
    r"passwor[dt]|passwd|passphrase|secret|credential|authorization|bearer"
    r"|(?:^|_)(?:(?:api|access|private|signing|encryption|ssh|account|service|subscription|auth|wandb)_?key"
    r"|(?:access|api|auth|bearer|csrf|github|gitlab|hf|hub|huggingface|oauth|refresh|wandb)_?token(?:_|$))"
)


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


# With these at its end, a name is that of something about a secret.
_ABOUT = _set_of(
    "algo algorithm backend class count dir directory enabled env expires expiry file files folder format host len"
    " length lifetime limit method mode name num path paths policy port provider required scheme size timeout ttl type"
    " version cfg ini json md pem pt py sh toml txt yaml yml"
)
# These say nothing more.
_NEUTRAL = _set_of("b code dev header headers hex id main prod raw str string test val value")
_WEAK_WORDS = _set_of("auth bearer cookie cookies jwt key oauth pass pwd session token")
# Keys that sort, and tokens that a model reads.
_PLAIN_BEFORE = {
    "key": _set_of(
        "attention batch bucket cache column config data dataset dict dictionary feature foreign group hash hot image"
        " index input join label lookup loss map metric monitor name order output partition primary prng prompt public"
        " query random rng row shard shuffle sort state tag target text"
    ),
    "token": _set_of(
        "audio begin bos byte class cls decoder each end eos every first image input last mask max min n new next num"
        " output pad per prompt sep skip source special start stop sub target to unk video word"
    ),
}
# `pass` and `pwd` mean other things, too.
_LOGINS = _set_of("admin basic db email ftp http ldap login mail mongo mysql pg proxy redis root smtp sudo user")
_IN_A_QUERY = frozenset(["sig", "signature", "code"])


def without_secrets(command: Iterable[str]) -> tuple[str, ...]:
    """A command without its secrets: `--hf-token ***`, `API_KEY=***`, `s3://***@bucket`."""
    found: list[str] = []
    asked = _NO
    for argument in command:
        if asked and not _OPTION.fullmatch(argument) and _is_value_of(asked, argument):
            found.append(HIDDEN)
            asked = asked if argument.lower() in _SCHEMES else _NO
        else:
            found.append(masked(argument))
            asked = _asks(argument)
    return tuple(found)


def masked(text: str) -> str:
    """One argument, or any text, without its secrets. What is masked already stays as it is."""
    text = _SHAPES.sub(_shape, text)
    return _without_named(text) if "=" in text or ":" in text or "-" in text else text


def is_secret(name: str, value: str) -> bool:
    """True where something of that name and value is to be kept to oneself."""
    return _is_value_of(_strength(name), value) or masked(value) != value


def without_secret_values(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags, those that are secrets with `***` as their value."""
    return {key: HIDDEN if is_secret(key, value) else value for key, value in tags.items()}


def _asks(argument: str) -> int:
    """How surely the next argument is a secret: after `--token`, `X-Api-Key:` and `Bearer`."""
    if len(argument) > _LONGEST_NAME:
        return _NO
    if argument.lower() == "bearer":
        return _STRONG
    return _strength(argument) if _ASKING.fullmatch(argument) else _NO


def _is_value_of(strength: int, value: str) -> bool:
    return strength == _STRONG or (strength == _WEAK and not _HARMLESS_VALUE.fullmatch(value))


def _shape(match: re.Match[str]) -> str:
    if match["user"]:
        return f"://{HIDDEN}@"
    return (match["scheme"] or "") + HIDDEN


def _without_named(text: str) -> str:
    """A text without the values whose names are those of secrets."""
    parts: list[str] = []
    done = place = 0
    while match := _NAMED.search(text, place):
        place = match.end()
        strength = _strength_in(text, match)
        if not strength or place == len(text):
            continue
        start, end = _value(text, match)
        if start < end and _is_value_of(strength, text[start:end]):
            parts += [text[done:start], HIDDEN]
            done = place = end
    return "".join([*parts, text[done:]])


def _strength_in(text: str, match: re.Match[str]) -> int:
    name, between = match["name"], match["between"]
    if between.isspace() and (not name.startswith("-") or _OPTION.match(text, match.end())):
        return _NO
    before = text[max(0, match.start() - 1) : match.start()]
    if before in ("?", "&") and not _IN_A_QUERY.isdisjoint(_words(name[-_LONGEST_NAME:])[-1:]):
        return _STRONG
    return _strength(name)


def _value(text: str, match: re.Match[str]) -> tuple[int, int]:
    """Where the value after a name begins and ends."""
    start = match.end()
    first = match.start() <= len(_PREFIX) and not text[: match.start()].strip(_PREFIX)
    if not (first and "=" in match["between"]):
        if quote := _QUOTE.match(text, start):
            return quote.end(), _closing(text, quote)
        if text[start] in "[{(":
            return start, _closing_bracket(text, start)
    return start, _END[_ending(text, match, first)].search(text, start).start()  # type: ignore[union-attr]


def _ending(text: str, match: re.Match[str], first: bool) -> str:
    """By what a bare value ends; one at the beginning of an argument goes on to its end."""
    between = match["between"]
    if between.isspace():
        return "option"
    if "=" in between:
        return "all" if first else "="
    if not first and not any(word in match["name"].lower() for word in _HEADERS):
        return ":"
    before = text[max(0, match.start() - 1) : match.start()]
    return before if before in ("'", '"') else "line"


def _closing(text: str, quote: re.Match[str]) -> int:
    """Where a quoted value ends: at the same quote, escaped as often; else at the end of the text."""
    opening = quote[0]
    for match in _QUOTE.finditer(text, quote.end()):
        escapes = len(match[0]) - 1
        same = escapes == len(opening) - 1 or (len(opening) == 1 and escapes % 2 == 0)
        if match[0][-1] == opening[-1] and same:
            return match.end() - len(opening)
    return len(text)


def _closing_bracket(text: str, start: int) -> int:
    depth = 0
    for match in _BRACKET.finditer(text, start):
        depth += 1 if match[0] in "[{(" else -1
        if depth == 0:
            return match.end()
    return len(text)


def _words(name: str) -> list[str]:
    """The words of a name: "AWSAccessKey" and "aws-access.key" -> ["aws", "access", "key"]."""
    return [word.lower() for word in _WORD.findall(name)]


@lru_cache(2048)
def _strength_of(name: str) -> int:
    words = _words(name)
    if not words or words[-1] in _ABOUT:
        return _NO
    if _STRONG_NAME.search("_".join(words)):
        return _STRONG
    while len(words) > 1 and (words[-1] in _NEUTRAL or words[-1].isdigit()):
        words.pop()
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last not in _WEAK_WORDS or before in _PLAIN_BEFORE.get(last, ()):
        return _NO
    if last in ("pass", "pwd") and not name.startswith("-") and before not in _LOGINS:
        return _NO
    return _WEAK


def _strength(name: str) -> int:
    """How surely something of that name is a secret. `_WEAK`: not if it is a number or a switch."""
    return _strength_of(name[-_LONGEST_NAME:])
