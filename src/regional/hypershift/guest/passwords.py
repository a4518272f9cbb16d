"""bcrypt, as the guest's OAuth server expects the kubeadmin password: from the C library, which every Linux has."""

from __future__ import annotations

import ctypes
import functools
import secrets
import threading
from typing import Any

_COST = "04"
"""The least there is. Cost slows down guessing, and nobody guesses twenty random characters at any speed."""
_ALPHABET = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_turn = threading.Lock()  # crypt(3) answers in a buffer of its own


@functools.cache
def _library() -> Any:
    for name in ("libcrypt.so.1", "libcrypt.so.2"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.crypt.restype = ctypes.c_char_p
        return library
    return None


def bcrypt(password: str) -> str:
    """ "" if this machine cannot."""
    library = _library()
    if library is None:
        return ""
    salt = "".join(secrets.choice(_ALPHABET) for _ in range(21)) + secrets.choice(".Oeu")
    with _turn:
        made = library.crypt(password.encode(), f"$2b${_COST}${salt}".encode())
    text = made.decode() if made else ""
    return text if text.startswith("$2b$") else ""
