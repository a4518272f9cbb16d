"""Sees what needs work: from the change feed at once, from a scan as a backstop."""
