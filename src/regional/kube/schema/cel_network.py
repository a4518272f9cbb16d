"""URLs, IP addresses and networks in CEL. Their types are plain strings here, which no rule can tell apart."""

from __future__ import annotations

import ipaddress
import re
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from cel_expr_python import cel

from regional.kube.schema.cel_declaring import STRINGS, function, method, overloads, succeeds

_T = cel.Type
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNESCAPED_IN_PATHS = "/%:@!$&'()*+,;=~"


# --- URLs ----------------------------------------------------------------------------------------------------------


def _split(text: str) -> SplitResult:
    """Absolute URIs and absolute paths count, as in Go's request URIs."""
    refusal = ValueError(f'URL parse error during conversion from string: parse "{text}": invalid URI for request')
    if not text or any(char < " " or char == "\x7f" for char in text):
        raise refusal
    try:
        parts = urlsplit(text)
    except ValueError:
        raise refusal from None
    port = parts.netloc.rpartition("@")[2].rpartition("]")[2].rpartition(":")[2]
    absolute = parts.scheme or text.startswith("/") or text == "*"
    if (
        not absolute
        or " " in parts.netloc
        or _BAD_ESCAPE.search(parts.netloc)
        or (":" in parts.netloc and _no_port(port))
    ):
        raise refusal
    return parts


def _no_port(text: str) -> bool:
    return bool(text) and not text.isdigit() and ":" not in text and "@" not in text and "]" not in text


def _url(text: str) -> str:
    _split(text)
    return text


def _host(text: str) -> str:
    return _split(text).netloc.rpartition("@")[2]


def _hostname(text: str) -> str:
    host = _host(text)
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _port(text: str) -> str:
    host = _host(text).rpartition("]")[2]
    return host.rpartition(":")[2] if ":" in host else ""


def _escaped_path(text: str) -> str:
    parts = _split(text)
    opaque = parts.scheme and not parts.netloc and not parts.path.startswith("/")
    return "" if opaque else quote(parts.path, safe=_UNESCAPED_IN_PATHS)


def _query(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in _split(text).query.split("&"):
        if ";" not in part:  # Go drops what holds a semicolon
            for key, value in parse_qsl(part, keep_blank_values=True):
                found.setdefault(key, []).append(value)
    return found


# --- addresses -----------------------------------------------------------------------------------------------------


def _address(text: str) -> Address:
    failure = f'IP Address "{text}" parse error during conversion from string: '
    if "%" in text:
        raise ValueError(f'IP address "{text}" with zone value is not allowed')
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f'{failure}ParseAddr("{text}"): {_why_no_address(text)}') from None
    if address.version == 6 and address.ipv4_mapped is not None:
        raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


def _why_no_address(text: str) -> str:
    if ":" not in text and "." not in text:
        return "unable to parse IP"
    odd = next((place for place, char in enumerate(text) if char not in "0123456789."), None)
    if ":" not in text and odd is not None:
        return f'unexpected character (at "{text[odd:]}")'
    return "unable to parse IP"


def _interface(text: str) -> Interface:
    failure = "network address parse error during conversion from string: "
    address, slash, length = text.rpartition("/")
    where = f'{failure}{failure}netip.ParsePrefix("{text}"): '
    if not slash:
        raise ValueError(f"{where}no '/'")
    if not length.isdigit() or (len(length) > 1 and length[0] == "0"):
        raise ValueError(f'{where}bad bits after slash: "{length}"')
    try:
        _address(address)
        return ipaddress.ip_interface(text)
    except ValueError as error:
        raise ValueError(f"{failure}{error}") from None


def _contains_address(network: str, address: str) -> bool:
    outside = _interface(network).network
    try:
        inside = _address(address)
    except ValueError:
        raise ValueError("no such overload") from None
    return inside.version == outside.version and inside in outside


def _contains_network(network: str, other: str) -> bool:
    outside = _interface(network).network
    try:
        inside = _interface(other).network
    except ValueError:
        raise ValueError("no such overload") from None
    if inside.version != outside.version or inside.prefixlen < outside.prefixlen:
        return False
    return inside.network_address in outside


def _is_global_unicast(text: str) -> bool:
    address = _address(text)
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and text != "255.255.255.255"


def _is_link_local_multicast(text: str) -> bool:
    address = _address(text)
    if address.version == 4:
        return address in ipaddress.IPv4Network("224.0.0.0/24")
    return address.is_multicast and int(address) >> 112 & 0xF == 2


def declarations() -> list[Any]:
    text, number, yes = _T.STRING, _T.INT, _T.BOOL
    return [
        function("isURL", yes, [text], succeeds(_url)),
        function("url", text, [text], _url),
        method("getScheme", text, [text], lambda url: _split(url).scheme),
        method("getHost", text, [text], _host),
        method("getHostname", text, [text], _hostname),
        method("getPort", text, [text], _port),
        method("getEscapedPath", text, [text], _escaped_path),
        method("getQuery", _T.Map(text, STRINGS), [text], _query),
        function("isIP", yes, [text], succeeds(_address)),
        overloads(
            "ip",
            (text, [text], lambda value: str(_address(value)), False),
            (text, [text], lambda value: str(_interface(value).ip), True),
        ),
        method("family", number, [text], lambda value: _address(value).version),
        method("isUnspecified", yes, [text], lambda value: _address(value).is_unspecified),
        method("isLoopback", yes, [text], lambda value: _address(value).is_loopback),
        method("isLinkLocalUnicast", yes, [text], lambda value: _address(value).is_link_local),
        method("isLinkLocalMulticast", yes, [text], _is_link_local_multicast),
        method("isGlobalUnicast", yes, [text], _is_global_unicast),
        function("ip.isCanonical", yes, [text], lambda value: str(_address(value)) == value),
        function("isCIDR", yes, [text], succeeds(_interface)),
        function("cidr", text, [text], lambda value: _interface(value).with_prefixlen),
        method("prefixLength", number, [text], lambda value: _interface(value).network.prefixlen),
        method("masked", text, [text], lambda value: _interface(value).network.with_prefixlen),
        method("containsIP", yes, [text, text], _contains_address),
        method("containsCIDR", yes, [text, text], _contains_network),
    ]
