"""Secrets in addresses: found, and hidden. Pure.

An address is `scheme://user:password@host/path?key=value`, as SQLAlchemy, MLflow and git take it. When in
doubt more is hidden than need be: a password is taken to reach up to the last `@` of a word, since SQLAlchemy
takes `/`, `?` and `#` in it as they are.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

HIDDEN = "***"
_WORD = re.compile(r"\S+")
_SCHEME = re.compile(r"[^\w+.-]")
_USER_END = re.compile(r"[:/]")
_WEB_USER_END = re.compile(r"[:/?#]")
# `http://host:5000/a@b` has no password, although SQLAlchemy would find one.
_HOST_AND_PORT = re.compile(r"(?:\[[^\]@]*\]|[^:/?#@]*):\d*(?:[/?#]|$)")
_QUERY = re.compile(r"[?&](?P<key>[^=&?]*)=(?P<value>[^&]*)")
_SECRET_KEY = re.compile(
    r"passw|passphrase|pwd|secret|credential|^sig$|odbc_connect|"
    # Whole words: `tokenizer` and `max_tokens` are no secrets.
    r"(?:^|[^a-z]|access|api|auth|bearer|id|refresh|security|session)token(?:$|[^a-z])|"
    r"(?:^|[^a-z])signature(?:$|[^a-z])|"
    r"(?:api|access|account|private)[_-]?key",
    re.IGNORECASE,
)
_WEB = frozenset({"http", "https"})
_SHELL = frozenset({"ssh", "git"})
# GitHub takes a token as the user with this password.
_NO_PASSWORDS = frozenset({"", "x-oauth-basic"})
_PIECES = re.compile(r"[/?#@&]")
_SHORTEST_PIECE = 4
_SEAL_ROUNDS = 50_000

_Span = tuple[int, int]


def hidden(text: str) -> str:
    """Return a text with the secrets of the addresses in it replaced by `***`."""
    return _WORD.sub(lambda found: hidden_in(found[0]), text) if "://" in text else text


def hidden_in(address: str) -> str:
    """Return one address with its secrets replaced by `***`; it may have blanks in it."""
    return _replaced(address, lambda _: HIDDEN)


def sealed(text: str) -> str:
    """Return a text with `***` and a digest in place of each secret of the addresses in it."""
    return _WORD.sub(lambda found: _replaced(found[0], seal), text) if "://" in text else text


@functools.lru_cache(maxsize=1000)
def seal(secret: str) -> str:
    """Return `***` and a short digest of a secret, slow to make, since by it guesses can be tried."""
    made = hashlib.pbkdf2_hmac("sha256", secret.encode(), b"airflows", _SEAL_ROUNDS, dklen=6)
    return f"{HIDDEN}{made.hex()}"


def _replaced(address: str, shown: Callable[[str], str]) -> str:
    made, end = [], 0
    for start, stop in _merged(_spans(address)):
        made += [address[end:start], shown(address[start:stop])]
        end = stop
    return "".join([*made, address[end:]])


def is_secret_name(name: str) -> bool:
    """Whether what is called so is a secret by its name, such as `HF_TOKEN`."""
    return _SECRET_KEY.search(name) is not None


def has_secret(address: str) -> bool:
    """Whether an address holds a password, a token or the like."""
    return any(_spans(address))


def secrets(address: str) -> tuple[str, ...]:
    """Return the secrets of an address in every spelling, also the pieces that a parser would make of them.

    The longest comes first.
    """
    whole = {address[start:stop] for start, stop in _spans(address)} - {HIDDEN}
    pieces = {piece for text in whole for piece in _PIECES.split(text) if len(piece) >= _SHORTEST_PIECE}
    spelled = whole | pieces
    return tuple(sorted(spelled | {unquote(text) for text in spelled}, key=lambda text: (-len(text), text)))


def bare(address: str) -> str:
    """Return an address without user and password when these hold a secret, and its other secrets hidden."""
    shown = hidden_in(address)
    scheme, _, rest = shown.partition("://")
    before, found, after = rest.partition(HIDDEN)
    # Further on it is a secret of the query.
    is_user = found and not set("/?") & set(before)
    return f"{scheme}://{after.partition('@')[2]}" if is_user else shown


def _spans(address: str) -> Iterator[_Span]:
    """Yield where secrets are; they may overlap."""
    begin = address.find("://")
    if begin < 0:
        return
    for found in _QUERY.finditer(address, begin):
        if found["value"] and _SECRET_KEY.search(unquote(found["key"])):
            yield found.span("value")
    last = address.rfind("@")
    while 0 <= begin < last:
        scheme = _SCHEME.split(address[:begin])[-1].lower()
        span = _userinfo(address, begin + len("://"), last, scheme.rpartition("+")[2])
        if span is not None and span[0] < span[1]:
            yield span
        begin = address.find("://", begin + 1)


def _userinfo(address: str, start: int, last: int, kind: str) -> _Span | None:
    """Return where the secret before a host is, given the place of the last `@` and the kind of address."""
    is_web = kind in _WEB
    found = (_WEB_USER_END if is_web else _USER_END).search(address, start)
    if found is None or found[0] != ":" or found.start() > last:
        at = address.rfind("@", start, len(address) if found is None else found.start())
        return (start, at) if is_web else None
    at = address.rfind("@", start, found.start())
    if kind in _WEB | _SHELL and _HOST_AND_PORT.match(address, max(start, at + 1)):
        return (start, at) if is_web else None
    first = address.find("@", found.end())
    if is_web and address[found.end() : first] in _NO_PASSWORDS:
        return (start, found.start() if first == last else last)
    return (found.end(), last)


def _merged(spans: Iterator[_Span]) -> list[_Span]:
    made: list[_Span] = []
    for start, stop in sorted(spans):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(stop, made[-1][1]))
        else:
            made.append((start, stop))
    return made
