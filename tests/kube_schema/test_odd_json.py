"""Bodies that one JSON parser takes and another refuses: Go's decoder has the last word, and its words are used."""

from __future__ import annotations

import pytest

from regional.kube.schema import gojson

REFUSED = {
    b"": "unexpected end of JSON input",
    b"  ": "unexpected end of JSON input",
    b"nonsense": "invalid character 'o' in literal null (expecting 'u')",
    b"tru": "unexpected end of JSON input",
    b"\xff": "invalid character 'ÿ' looking for beginning of value",
    b'{"a":1,}': "invalid character '}' looking for beginning of object key string",
    b"[1,]": "invalid character ']' looking for beginning of value",
    b'{"a" 1}': "invalid character '1' after object key",
    b'{"a":1 "b"}': "invalid character '\"' after object key:value pair",
    b"[1 2]": "invalid character '2' after array element",
    b"{} x": "invalid character 'x' after top-level value",
    b'"\\x"': "invalid character 'x' in string escape code",
    b'"\\u12g4"': "invalid character 'g' in \\u hexadecimal character escape",
    b'"a\nb"': "invalid character '\\n' in string literal",
    b'"a\x00b"': "invalid character '\\x00' in string literal",
    b'{"a":01}': "invalid character '1' after object key:value pair",
    b"-x": "invalid character 'x' in numeric literal",
    b"1.x": "invalid character 'x' after decimal point in numeric literal",
    b"1ex": "invalid character 'x' in exponent of numeric literal",
    b'{"a":NaN}': "invalid character 'N' looking for beginning of value",
    b"[" * 10_001: "invalid character '[' exceeded max depth",
    b'"' + b"'" * 3: "unexpected end of JSON input",
}


@pytest.mark.parametrize("body", REFUSED, ids=[repr(body[:12]) for body in REFUSED])
def test_errors_are_told_in_gos_words(body: bytes) -> None:
    assert gojson.syntax_problem(body) == REFUSED[body]


def test_what_go_takes_is_taken() -> None:
    assert gojson.lenient(b'{"a":"\xff\xfe"}') == {"a": "\ufffd\ufffd"}
    assert gojson.lenient(b'{"a":"\\ud800x","b":"\\ud83d\\ude00"}') == {"a": "\ufffdx", "b": "\U0001f600"}
    assert str(gojson.lenient(b'{"a":1e400}')["a"]) == "1e400"
    assert str(gojson.lenient(b'{"a":' + b"1" * 5000 + b"}")["a"]) == "1" * 5000


def test_nesting_is_cut_where_nothing_is_typed_any_more() -> None:
    body = b'{"a":{"b":{"c":[1]},"d":[1,[2]],"e":"]}\\""}}'
    assert gojson.shallow(body, 2) == b'{"a":{"b":{},"d":[],"e":"]}\\""}}'
    deep = b'{"a":' * 9_000 + b"1" + b"}" * 9_000
    assert gojson.syntax_problem(deep) is None
    assert isinstance(gojson.lenient(deep), gojson.Shallow)


def test_long_bodies_are_not_read_byte_by_byte() -> None:
    body = b"[" + b"1," * gojson.EXACT_BYTES + b"x]"
    assert gojson.syntax_problem(body) == "invalid character 'x' looking for beginning of value"
