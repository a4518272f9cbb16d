"""Rules for names, labels and annotations, in the API's words (clients and people grep for these texts)."""

from __future__ import annotations

import re
from collections.abc import Callable

LABEL_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN_PATTERN = LABEL_PATTERN + r"(\." + LABEL_PATTERN + ")*"
LABEL_1035_PATTERN = "[a-z]([-a-z0-9]*[a-z0-9])?"
QUALIFIED_PATTERN = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
VALUE_PATTERN = f"({QUALIFIED_PATTERN})?"
KEY_PATTERN = "[-._a-zA-Z0-9]+"
ENV_PATTERN = re.compile(r"^[ -<>-~]+$")

_LABEL = re.compile(f"^{LABEL_PATTERN}$")
_SUBDOMAIN = re.compile(f"^{SUBDOMAIN_PATTERN}$")
_LABEL_1035 = re.compile(f"^{LABEL_1035_PATTERN}$")
_QUALIFIED = re.compile(f"^{QUALIFIED_PATTERN}$")
_VALUE = re.compile(f"^{VALUE_PATTERN}$")
_KEY = re.compile(f"^{KEY_PATTERN}$")

NameRule = Callable[[str], list[str]]


def _used(pattern: str, *examples: str) -> str:
    shown = "".join(f"'{example}', " if index == 0 else f" or '{example}', " for index, example in enumerate(examples))
    return f"(e.g. {shown}regex used for validation is '{pattern}')"


def _length(value: str, most: int) -> list[str]:
    return [f"must be no more than {most} bytes"] if len(value) > most else []


def dns_subdomain(value: str) -> list[str]:
    problems = _length(value, 253)
    if not _SUBDOMAIN.match(value):
        problems.append(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            f"and must start and end with an alphanumeric character {_used(SUBDOMAIN_PATTERN, 'example.com')}"
        )
    return problems


def dns_label(value: str) -> list[str]:
    problems = _length(value, 63)
    if not _LABEL.match(value):
        problems.append(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            f"and must start and end with an alphanumeric character {_used(LABEL_PATTERN, 'my-name', '123-abc')}"
        )
    return problems


def port_name(value: str) -> list[str]:
    problems = _length(value, 15)
    if not re.fullmatch("[-a-z0-9]+", value):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        problems.append("must contain at least one letter (a-z)")
    if "--" in value:
        problems.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def dns_1035_label(value: str) -> list[str]:
    problems = _length(value, 63)
    if not _LABEL_1035.match(value):
        problems.append(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
            f"character, and end with an alphanumeric character {_used(LABEL_1035_PATTERN, 'my-name', 'abc-123')}"
        )
    return problems


def path_segment(value: str) -> list[str]:
    """Names of RBAC objects: whatever can stand in a URL path."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in value]


def qualified_name(value: str) -> list[str]:
    """Keys of labels and annotations, and finalizers: `name` or `prefix/name`."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        return [
            "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            f"alphanumeric character {_used(QUALIFIED_PATTERN, 'MyName', 'my.name', '123-abc')} with an optional DNS "
            "subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    problems: list[str] = []
    if slash:
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems.extend(f"prefix part {text}" for text in dns_subdomain(prefix))
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not _QUALIFIED.match(name):
        problems.append(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            f"alphanumeric character {_used(QUALIFIED_PATTERN, 'MyName', 'my.name', '123-abc')}"
        )
    return problems


def label_value(value: str) -> list[str]:
    problems = _length(value, 63)
    if not _VALUE.match(value):
        problems.append(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
            f"start and end with an alphanumeric character {_used(VALUE_PATTERN, 'MyValue', 'my_value', '12345')}"
        )
    return problems


def config_key(value: str) -> list[str]:
    """Keys of ConfigMap and Secret data, which become file names."""
    problems = _length(value, 253)
    if not _KEY.match(value):
        problems.append(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
            f"{_used(KEY_PATTERN, 'key.name', 'KEY_NAME', 'key-name')}"
        )
    elif value in (".", ".."):
        problems.append(f"must not be '{value}'")
    elif value.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def env_name(value: str) -> list[str]:
    if not ENV_PATTERN.match(value):
        return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]
    return []


# How the name of each kind must look; the rest are DNS subdomains.
def namespace_name(value: str) -> list[str]:
    return ["must not contain dots"] if "." in value else dns_label(value)


NAME_RULES: dict[tuple[str, str], NameRule] = {
    ("", "Namespace"): namespace_name,
    ("", "Service"): dns_1035_label,
    ("rbac.authorization.k8s.io", "Role"): path_segment,
    ("rbac.authorization.k8s.io", "RoleBinding"): path_segment,
    ("rbac.authorization.k8s.io", "ClusterRole"): path_segment,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): path_segment,
}
