"""The functions that Kubernetes adds to CEL, for the engine we use.

The engine has the standard library, strings, math, optionals and bindings. Kubernetes adds URL, IP, CIDR, quantity,
regex, list, set and semver helpers. Their opaque types (URL, IP, …) are plain strings here: the constructor checks the
text, and the methods are methods of strings, which no rule can tell apart.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings

from regional.kube.schema.quantity import canonical, parse_quantity

_T = cel.Type
_STRINGS = _T.List(_T.STRING)
_ANYTHING = _T.List(_T.DYN)
# Backtracking can explode on these; the real engine is linear.
_NESTED_REPEAT = re.compile(r"[+*}]\)?[^)]*\)[+*{]")
_LONG = 512


@cache
def environment() -> Any:
    """The one environment in which every rule is compiled."""
    return cel.NewEnv(
        variables={"self": _T.DYN, "oldSelf": _T.DYN, "hasOldSelf": _T.BOOL, "givenOldSelf": _T.DYN},
        extensions=[
            ext_strings.ExtStrings(),
            ext_optional.ExtOptional(),
            ext_bindings.ExtBindings(),
            ext_math.ExtMath(),
            ext_encoders.ExtEncoders(),
        ],
        functions=_declarations(),
    )


@cache
def _matcher() -> Any:
    return environment().compile("self.matches(oldSelf)")


def matches_pattern(pattern: str, text: str) -> bool:
    """Whether a Go regular expression finds a match; done by the engine because its dialect and cost are the same.

    A pattern that is no valid expression matches everything: the CRD was accepted with it.
    """
    found = _matcher().eval(data={"self": text, "oldSelf": pattern})
    return bool(found.type() == _T.ERROR or found.value())


# --- regular expressions -------------------------------------------------------------------------------------------


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(r"\z", r"\Z"))


def _guarded(text: str, pattern: str) -> re.Pattern[str]:
    if len(text) > _LONG and _NESTED_REPEAT.search(pattern):
        raise ValueError("the expression is too costly for a text of this length")
    return _expression(pattern)


def _find(text: str, pattern: str) -> str:
    found = _guarded(text, pattern).search(text)
    return found.group(0) if found else ""


def _find_all(text: str, pattern: str) -> list[str]:
    return [found.group(0) for found in _guarded(text, pattern).finditer(text)]


def _find_some(text: str, pattern: str, limit: int) -> list[str]:
    found = _find_all(text, pattern)
    return found if limit < 0 else found[:limit]


# --- URLs ----------------------------------------------------------------------------------------------------------


def _is_url(text: str) -> bool:
    """Absolute URIs and absolute paths count, as in Go's request URIs."""
    if not text or any(char <= " " or char == "\x7f" for char in text):
        return False
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return bool(parts.scheme) or text.startswith("/")


def _url(text: str) -> str:
    if not _is_url(text):
        raise ValueError(f"URL parse error during conversion from string: parse {text!r}: invalid URI for request")
    return text


def _hostname(text: str) -> str:
    host = urlsplit(text).netloc.rpartition("@")[2]
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0]


# --- addresses -----------------------------------------------------------------------------------------------------


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if "%" in text:
        raise ValueError(f"IP Address {text!r} parse error: zones are not allowed")
    address = ipaddress.ip_address(text)
    if address.version == 6 and address.ipv4_mapped is not None:
        raise ValueError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return address


def _interface(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    _, slash, length = text.partition("/")
    if not slash or not length.isdigit():
        raise ValueError(f"network address parse error during conversion from string: {text!r}")
    return ipaddress.ip_interface(text)


def _succeeds(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


def _contains_address(network: str, address: str) -> bool:
    inside, outside = _address(address), _interface(network).network
    return inside.version == outside.version and inside in outside


def _contains_network(network: str, other: str) -> bool:
    inside, outside = _interface(other).network, _interface(network).network
    if inside.version != outside.version or inside.prefixlen < outside.prefixlen:
        return False
    return inside.network_address in outside


# --- lists and sets ------------------------------------------------------------------------------------------------


def _is_sorted(items: list[Any]) -> bool:
    return all(items[index] <= items[index + 1] for index in range(len(items) - 1))


def _index_of(items: list[Any], item: Any) -> int:
    return items.index(item) if item in items else -1


def _last_index_of(items: list[Any], item: Any) -> int:
    return max((index for index, value in enumerate(items) if value == item), default=-1)


def _contains_all(items: list[Any], wanted: list[Any]) -> bool:
    return all(item in items for item in wanted)


# --- declarations --------------------------------------------------------------------------------------------------


def _function(name: str, result: Any, parameters: list[Any], run: Callable[..., Any]) -> Any:
    return _overloads(name, [(result, parameters, run, False)])


def _method(name: str, result: Any, parameters: list[Any], run: Callable[..., Any]) -> Any:
    return _overloads(name, [(result, parameters, run, True)])


def _overloads(name: str, overloads: list[tuple[Any, list[Any], Callable[..., Any], bool]]) -> Any:
    made = [
        cel.Overload(
            f"regional_{name.replace('.', '_')}_{index}",
            return_type=result,
            parameters=parameters,
            is_member=member,
            impl=run,
        )
        for index, (result, parameters, run, member) in enumerate(overloads)
    ]
    return cel.FunctionDecl(name, made)


def _declarations() -> list[Any]:
    text, number, yes = _T.STRING, _T.INT, _T.BOOL
    return [
        _method("find", text, [text, text], _find),
        _overloads(
            "findAll",
            [(_STRINGS, [text, text], _find_all, True), (_STRINGS, [text, text, number], _find_some, True)],
        ),
        _function("isURL", yes, [text], _is_url),
        _function("url", text, [text], _url),
        _method("getScheme", text, [text], lambda url: urlsplit(url).scheme),
        _method("getHost", text, [text], lambda url: urlsplit(url).netloc.rpartition("@")[2]),
        _method("getHostname", text, [text], _hostname),
        _method("getPort", text, [text], lambda url: str(urlsplit(url).port or "")),
        _method("getEscapedPath", text, [text], lambda url: urlsplit(url).path),
        _method(
            "getQuery",
            _T.Map(text, _STRINGS),
            [text],
            lambda url: parse_qs(urlsplit(url).query, keep_blank_values=True),
        ),
        _function("isIP", yes, [text], _succeeds(_address)),
        _overloads(
            "ip",
            [(text, [text], lambda value: str(_address(value)), False), (text, [text], _network_address, True)],
        ),
        _method("family", number, [text], lambda value: _address(value).version),
        _method("isUnspecified", yes, [text], lambda value: _address(value).is_unspecified),
        _method("isLoopback", yes, [text], lambda value: _address(value).is_loopback),
        _method("isLinkLocalUnicast", yes, [text], lambda value: _address(value).is_link_local),
        _method(
            "isGlobalUnicast",
            yes,
            [text],
            lambda value: (
                not (
                    _address(value).is_unspecified
                    or _address(value).is_loopback
                    or _address(value).is_multicast
                    or _address(value).is_link_local
                )
            ),
        ),
        _function("ip.isCanonical", yes, [text], lambda value: str(_address(value)) == value),
        _function("isCIDR", yes, [text], _succeeds(_interface)),
        _function("cidr", text, [text], lambda value: _interface(value).with_prefixlen),
        _method("prefixLength", number, [text], lambda value: _interface(value).network.prefixlen),
        _method("masked", text, [text], lambda value: _interface(value).network.with_prefixlen),
        _method("containsIP", yes, [text, text], _contains_address),
        _method("containsCIDR", yes, [text, text], _contains_network),
        _function("isQuantity", yes, [text], _succeeds(parse_quantity)),
        _function("quantity", text, [text], canonical),
        _method("isGreaterThan", yes, [text, text], lambda a, b: parse_quantity(a) > parse_quantity(b)),
        _method("isLessThan", yes, [text, text], lambda a, b: parse_quantity(a) < parse_quantity(b)),
        _method("compareTo", number, [text, text], _compare_quantities),
        _method("sign", number, [text], lambda value: _compare_quantities(value, "0")),
        _method("isInteger", yes, [text], lambda value: parse_quantity(value) % 1 == 0),
        _method("asInteger", number, [text], lambda value: int(parse_quantity(value))),
        _method("asApproximateFloat", _T.DOUBLE, [text], lambda value: float(parse_quantity(value))),
        _method("isSorted", yes, [_ANYTHING], _is_sorted),
        _method("sum", _T.DYN, [_ANYTHING], sum),
        _method("min", _T.DYN, [_ANYTHING], min),
        _method("max", _T.DYN, [_ANYTHING], max),
        _function("sets.contains", yes, [_ANYTHING, _ANYTHING], _contains_all),
        _function(
            "sets.equivalent", yes, [_ANYTHING, _ANYTHING], lambda a, b: _contains_all(a, b) and _contains_all(b, a)
        ),
        _function("sets.intersects", yes, [_ANYTHING, _ANYTHING], lambda a, b: any(item in b for item in a)),
    ]


def _network_address(text: str) -> str:
    return str(_interface(text).ip)


def _compare_quantities(left: str, right: str) -> int:
    a, b = parse_quantity(left), parse_quantity(right)
    return (a > b) - (a < b)
