"""Executes AWS calls on moto, one after the other, and keeps what they changed.

One thread does everything, because the order of the journal must be the order of effects and moto's generator is
shared. A replayed call takes exactly the same way as a live one.
"""

from __future__ import annotations

import io
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from regional.cloud.host import compaction
from regional.cloud.host.calls import SESSION_ACTIONS, Call, Described, describe, form, refusal
from regional.cloud.host.journal import Journal

# moto's defaults would add CORS headers that let any web page read answers. Read at its import, hence here.
os.environ["MOTO_DISABLE_GLOBAL_CORS"] = "1"
# Thousands of public machine images for every account and region, 0.2 s each; our nodes are not EC2 instances.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

import moto
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from regional.cloud.host import lean, randomness, trust

log = logging.getLogger(__name__)

_ACCESS_KEY = re.compile(rb"<AccessKeyId>([A-Z0-9]+)</AccessKeyId>")
_DEFAULT_SESSION_SECONDS = 3600
_SWEEP_SECONDS = 30.0
_COMPACT_AFTER = 500  # appended calls between two looks for what is superseded


class Answer(msgspec.Struct):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Engine:
    def __init__(self, journal: Journal, now: Callable[[], float] = time.time) -> None:
        self.journal = journal
        self.replayed = 0
        self.mismatches = 0
        self._now = now
        self._sessions: dict[str, float] = {}  # temporary access key → end of its validity
        self._proven: set[str] = set()  # of these, the ones that were handed to somebody who may have them
        self._next_sweep = 0.0
        self._since_compaction = 0
        lean.install()
        randomness.seed_backends_by_name(journal.state.header.root_seed)
        self._dispatcher = DomainDispatcherApplication(_create_app)
        randomness.lead_modules_to_generator()

    def replay(self) -> None:
        """Bring moto to where the journal ends. A call that now ends otherwise is logged, not fatal."""
        began = time.perf_counter()
        recorded = self.journal.state.payloads
        self.journal.state.payloads = []
        calls = [msgspec.msgpack.decode(payload, type=Call) for payload in recorded]
        kept = compaction.needed(calls, self._now())
        if len(kept) < len(calls):
            self.journal.rewrite(msgspec.msgpack.encode(call) for call in kept)
        for call in kept:
            answer = self._run(call)
            if answer.status != call.status:
                self.mismatches += 1
                log.error(
                    "replayed call ended otherwise",
                    extra={"call": name_of(call), "then": call.status, "now": answer.status},
                )
            if call.session_key:
                self._sessions[call.session_key] = call.session_until
                if call.session_proven:
                    self._proven.add(call.session_key)
        self.replayed = len(kept)
        log.info(
            "journal replayed",
            extra={
                "calls": len(kept),
                "superseded": len(calls) - len(kept),
                "droppedBytes": self.journal.state.dropped_bytes,
                "seconds": round(time.perf_counter() - began, 3),
            },
        )

    def execute(self, call: Call, sent: Sequence[tuple[str, str]] = ()) -> tuple[Answer, int]:
        """The answer, and the journal position that must be on disk before anybody may see it.

        `sent` are all the headers as they came, names lower-case: a signature may cover more than the journal keeps.
        """
        self._sweep_sessions()
        what = describe(call)
        if what.access_key.startswith("ASIA") and what.access_key not in self._sessions:
            # moto would take an unknown key for one of the central account.
            expired = "ExpiredToken", "The security token included in the request is expired"
            return _refuse(what, expired), self.journal.position
        call.account = self._account_of(what)
        if refused := self._why_not(call, what, sent):
            log.warning("refused", extra={"call": name_of(call), "access_key": what.access_key, "code": refused[0]})
            return _refuse(what, refused), self.journal.position
        if not what.mutating:
            return self._run(call), self.journal.position
        call.seed = os.urandom(16)
        call.time = self._now()
        answer = self._run(call)
        if answer.status < 400:
            if what.action in SESSION_ACTIONS and not self._is_as_asked(call, answer):
                mistaken = "ValidationError", "the request names more than one role"
                return _refuse(what, mistaken), self.journal.position
            self._remember(call, what, answer)
        return answer, self.journal.position

    def _why_not(self, call: Call, what: Described, sent: Sequence[tuple[str, str]]) -> trust.Refused | None:
        """The calls that give credentials are for those who prove who they are, and may have them."""
        key = trust.find_key(what.access_key)
        if key is None and what.action not in SESSION_ACTIONS:
            return None
        if self._service(call) not in ("iam", "sts"):
            return None
        caller = trust.central(call.account)
        if key is not None:
            if key.caller is None:
                return "InvalidClientTokenId", "The security token included in the request is invalid."
            if refused := trust.why_not_signed(call, sent, key, self._now()):
                return refused
            caller = key.caller
        if what.action not in SESSION_ACTIONS:
            return None
        doubtful = key is not None and key.session_token and what.access_key not in self._proven
        if doubtful or what.action != "AssumeRole":  # the others need an identity provider, and none is known here
            return "AccessDenied", f"Not authorized to perform sts:{what.action}"
        return trust.why_not_assume(what.access_key, caller, form(call))

    def _service(self, call: Call) -> str:
        """Where moto will take it: the caller's own word in the signature's scope may be another."""
        app = self._dispatcher.get_application(_environ(call))
        return next((name for name, known in self._dispatcher.app_instances.items() if known is app), "")

    def _is_as_asked(self, call: Call, answer: Answer) -> bool:
        """Whether moto read the same role in the request as we did when we allowed it; else the session goes."""
        match = _ACCESS_KEY.search(answer.body)
        key = match[1].decode() if match else ""
        if key and trust.role_of_session(key) == form(call).get("RoleArn"):
            return True
        _forget({key})
        return False

    def _remember(self, call: Call, what: Described, answer: Answer) -> None:
        call.status = answer.status
        if what.action in SESSION_ACTIONS and (match := _ACCESS_KEY.search(answer.body)):
            duration = int(form(call).get("DurationSeconds") or _DEFAULT_SESSION_SECONDS)
            call.session_key = match[1].decode()
            call.session_until = call.time + duration
            call.session_proven = True
            self._sessions[call.session_key] = call.session_until
            self._proven.add(call.session_key)
        self.journal.append(msgspec.msgpack.encode(call))
        self._since_compaction += 1
        if self._since_compaction >= _COMPACT_AFTER:
            self._compact()

    def _compact(self) -> None:
        self._since_compaction = 0
        calls = [msgspec.msgpack.decode(payload, type=Call) for payload in self.journal.payloads()]
        kept = compaction.needed(calls, self._now())
        # Rewriting stops the world for a moment; a tenth of the file is worth it.
        if len(kept) <= len(calls) * 0.9:
            self.journal.rewrite(msgspec.msgpack.encode(call) for call in kept)
            log.info("journal compacted", extra={"before": len(calls), "after": len(kept)})

    def _run(self, call: Call) -> Answer:
        environ = _environ(call)
        seen: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> Any:
            seen.append((status, headers))

        try:
            app = self._dispatcher.get_application(environ)  # may import a service, which may draw
            if call.seed:
                randomness.seed(call.seed)
            chunks = app(environ, start_response)
            try:
                body = b"".join(chunks)
            finally:
                if close := getattr(chunks, "close", None):
                    close()
            status, headers = seen[-1]
            return Answer(int(status.split()[0]), headers, body)
        except Exception:
            log.exception("moto failed", extra={"call": name_of(call)})
            message = {
                "__type": "InternalFailure",
                "message": "the AWS host could not carry out this call; see its log",
            }
            return Answer(500, [("content-type", "application/json")], msgspec.json.encode(message))

    def _account_of(self, what: Described) -> str:
        from moto.iam.models import get_account_id_from

        return str(get_account_id_from(what.access_key)) if what.access_key else str(DEFAULT_ACCOUNT_ID)

    def _sweep_sessions(self) -> None:
        """Expired sessions go from moto's memory too: it looks through all of them at every call."""
        now = self._now()
        if now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_SECONDS
        expired = {key for key, until in self._sessions.items() if until <= now}
        if not expired:
            return
        _forget(expired)
        self._proven -= expired
        for key in expired:
            del self._sessions[key]

    def proven_session(self, access_key: str) -> bool:
        """Still good, and handed to somebody whom the role trusts. Of sessions in journals of old nobody can say."""
        return access_key in self._proven and self._sessions.get(access_key, 0.0) > self._now()


def _forget(sessions: set[str]) -> None:
    from moto.iam.models import iam_backends
    from moto.sts.models import sts_backends

    users: Iterator[tuple[str, str, Any]] = iam_backends.iter_backends()
    for _, _, iam in users:
        for key in sessions & iam.access_keys.keys():
            del iam.access_keys[key]
    roles: Iterator[tuple[str, str, Any]] = sts_backends.iter_backends()
    for _, _, sts in roles:
        sts.assumed_roles = [role for role in sts.assumed_roles if role.access_key_id not in sessions]


def _refuse(what: Described, why: trust.Refused) -> Answer:
    status, kind, body = refusal(what, *why)
    return Answer(status, [("content-type", kind)], body)


def _create_app(service: Any) -> Any:
    began = time.perf_counter()
    app = create_backend_app(service)
    randomness.lead_modules_to_generator()
    log.info("service loaded", extra={"service": service, "seconds": round(time.perf_counter() - began, 3)})
    return app


def name_of(call: Call) -> str:
    what = describe(call)
    return f"{what.service}:{what.action}" if what.action else f"{what.service}: {call.method} {call.path}"


def _environ(call: Call) -> dict[str, Any]:
    host, _, port = call.header("host").partition(":")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": call.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(call.path).decode("latin-1"),
        "QUERY_STRING": call.query,
        "REQUEST_URI": call.path + ("?" + call.query if call.query else ""),
        "RAW_URI": call.path + ("?" + call.query if call.query else ""),
        "SERVER_NAME": host or "localhost",
        "SERVER_PORT": port or "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(call.body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "CONTENT_LENGTH": str(len(call.body)),
        "HTTP_X_MOTO_ACCOUNT_ID": call.account or DEFAULT_ACCOUNT_ID,
    }
    preserved: dict[str, str] = {}
    for name, value in call.headers:
        key = name.upper().replace("-", "_")
        if key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            environ[key] = value
            continue
        key = f"HTTP_{key}"
        environ[key] = f"{environ[key]},{value}" if key in environ else value
        if "_" in name and name.startswith("x-amz-meta-"):  # S3 tells `a_b` from `a-b`; WSGI does not
            preserved[key] = name
    environ["moto.preserved_header_names"] = preserved
    return environ


MOTO_VERSION = str(moto.__version__)
