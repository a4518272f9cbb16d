"""Topics: which consumer a message is for or from. The consumer's place in a configured topic is its last `+`."""

from __future__ import annotations

import re

_SHARED = re.compile(r"^\$share/[a-z0-9-]+/")
_CONSUMER = re.compile(r"^[a-z]+/[a-z0-9-]+/[a-z]+/([a-z0-9-]+)/(?:source|agent)events$")
_CONFIGURED = re.compile(r"^(\$share/[a-z0-9-]+/)?[a-z]+/([a-z0-9-]+|\+)/[a-z]+/([a-z0-9-]+|\+)/(source|agent)events$")


def checked(topic: str) -> str:
    """Raises ValueError for a topic that no Maestro could use."""
    if not _CONFIGURED.match(topic):
        raise ValueError(f"topic {topic!r} is not <word>/<source>/<word>/<consumer or +>/sourceevents|agentevents")
    return topic


def for_consumer(configured: str, consumer: str) -> str:
    """The topic to publish to, or an agent's own subscription."""
    plain = _SHARED.sub("", configured)
    head, wildcard, tail = plain.rpartition("+")
    return f"{head}{consumer}{tail}" if wildcard else plain


def consumer_of(topic: str) -> str:
    """ "" for a topic of another shape."""
    found = _CONSUMER.match(topic)
    return found.group(1) if found else ""
