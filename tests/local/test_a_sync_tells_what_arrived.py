"""`regionctl sync` says of each Application how it ended."""

from __future__ import annotations

from regional.gitops.arrival import LEAVING
from regional.local.rollout import arrivals


def test_what_goes_is_not_called_healthy_and_what_only_notes_a_commit_is_not_told() -> None:
    told = {
        "": "was not looked at",
        "argocd": "is at 1234567, main is 89abcde",
        "clm": "OutOfSync",
        "hello": LEAVING,
        "platform-api": "Progressing",
    }
    assert arrivals(told, {"platform-api": "Progressing"}) == ["clm: synced and healthy", "hello: removed"]
