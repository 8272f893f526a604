"""Texts without what looks like a credential.

It refuses to know: where texts go.  Invariant: bearer tokens, JSON Web Tokens, AWS keys, passwords in URLs, private keys, values
named as secrets, and every value that was handed to `hide` never come out of `safe`.
"""

import re
from functools import lru_cache

BLOT = "[hidden]"
HIDDEN_LENGTH_MIN = 8  # shorter values would blot ordinary words
HIDDEN_MAX = 64  # rotated tokens push the oldest out

_NAMES = r"aws_?secret_?access_?key|secret_?access_?key|session_?token|x-amz-(?:signature|security-token|credential)"
_LOOSE_NAMES = r"password|passwd|client_?secret|api_?key|token|authorization"
_SECRET = re.compile(
    r"(?P<scheme>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    rf'|(?P<name>(?:{_NAMES})\\?"?\s*[:=]\s*\\?"?|(?:{_LOOSE_NAMES})(?:=\\?"?|\\?"\s*:\s*\\?"))[^\s"\\\',&;}}]{{4,}}'
    r"|(?P<user>://[^/\s:@]+:)[^/\s@]+(?=@)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[A-Za-z0-9+/=\s\\:,-]*",
    re.IGNORECASE,
)
# One of these stands in every text that the pattern above can match: a text without any is safe at once.  Plain searches, since
# every log line goes through here: they take a tenth of the pattern's time (measured 2026-12).
_SIGNS = (
    "bearer",
    "basic",
    "eyj",
    "akia",
    "asia",
    "secret",
    "token",
    "x-amz",
    "passw",
    "api",
    "authorization",
    "://",
    "private",
)
_SECRET_NAME = re.compile(
    r"secret_?(?:access_?)?key|client_?secret|token$|password|passwd|authorization|credentials?$|session_?key|access_?key|api_?key",
    re.IGNORECASE,
)
_hidden: dict[str, None] = {}  # in order of hiding


def hide(secret: str) -> None:
    """Blot this very value out of every text from now on: a token that was read, a secret key that was found."""
    if len(secret) >= HIDDEN_LENGTH_MIN:
        _hidden.pop(secret, None)
        _hidden[secret] = None
        while len(_hidden) > HIDDEN_MAX:
            del _hidden[next(iter(_hidden))]


def safe(text: str) -> str:
    """The text with what looks like a credential blotted out."""
    for secret in _hidden:
        if secret in text:
            text = text.replace(secret, BLOT)
    low = text.lower()
    for sign in _SIGNS:
        if sign in low:
            return _SECRET.sub(_blot, text)
    return text


def _blot(match: re.Match[str]) -> str:
    kept = match["scheme"] or match["name"] or match["user"] or ""
    return kept + BLOT


@lru_cache(1024)
def names_secret(name: str) -> bool:
    """Whether a field of this name holds a credential."""
    return _SECRET_NAME.search(name) is not None
