"""What handlers of an informer hear, checked as it is told: added before modified, deleted once."""

from __future__ import annotations

from regional.kube.objects import Key, Obj, key_of, uid_of


class Story:
    """Replays what handlers heard and complains about impossible turns."""

    def __init__(self) -> None:
        self.now: dict[Key, str] = {}
        self.faults: list[str] = []

    def hear(self, kind: str, obj: Obj) -> None:
        key, uid = key_of(obj), uid_of(obj)
        if kind == "ADDED" and key in self.now:
            self.faults.append(f"{key} added twice")
        if kind != "ADDED" and self.now.get(key) != uid:
            self.faults.append(f"{key} {kind} out of nowhere")
        if kind == "DELETED":
            self.now.pop(key, None)
        else:
            self.now[key] = uid
