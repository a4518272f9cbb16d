"""Service-account tokens: ES256 JWTs signed with the cluster's key, void as soon as what they are bound to is gone."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from regional.core.clock import Clock

ISSUER = "https://kubernetes.default.svc.cluster.local"
_KNOWN = 1_000


class Bound(msgspec.Struct, frozen=True):
    name: str
    uid: str


class Claims(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    uid: str
    identifier: str = ""
    audiences: tuple[str, ...] = ()
    pod: Bound | None = None
    node: Bound | None = None
    secret: Bound | None = None

    def extra(self) -> dict[str, list[str]]:
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={self.identifier}"]}
        for kind, bound in (("pod", self.pod), ("node", self.node)):
            if bound is not None:
                extra[f"authentication.kubernetes.io/{kind}-name"] = [bound.name]
                extra[f"authentication.kubernetes.io/{kind}-uid"] = [bound.uid]
        return extra


UidOf = Callable[[str, str, str], str]  # resource, namespace, name → uid, "" if gone


class TokenIssuer:
    def __init__(self, key_file: Path, uid_of: UidOf, clock: Clock, issuer: str = ISSUER) -> None:
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key_file}: an ECDSA key is needed")
        self._key = key
        self._public = key.public_key()
        self._uid_of = uid_of
        self._clock = clock
        # A signature costs as much as the rest of a small request; what it is bound to is looked at every time.
        self._verified: dict[tuple[bytes, tuple[str, ...]], tuple[Claims, float, float]] = {}
        self._kid = base64.urlsafe_b64encode(hashlib.sha256(self._spki()).digest()).rstrip(b"=").decode()
        self.issuer = issuer
        self.own_audience = issuer

    def _spki(self) -> bytes:
        return self._public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)

    def issue(self, claims: Claims, audiences: Sequence[str], seconds: int) -> tuple[str, int]:
        """The token and the moment it expires."""
        now = int(self._clock.now().timestamp())
        kubernetes: dict[str, Any] = {
            "namespace": claims.namespace,
            "serviceaccount": {"name": claims.name, "uid": claims.uid},
        }
        for kind in ("pod", "node", "secret"):
            if (bound := getattr(claims, kind)) is not None:
                kubernetes[kind] = msgspec.to_builtins(bound)
        payload = {
            "iss": self.issuer,
            "sub": f"system:serviceaccount:{claims.namespace}:{claims.name}",
            "aud": list(audiences),
            "exp": now + seconds,
            "iat": now,
            "nbf": now,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": kubernetes,
        }
        return jwt.encode(payload, self._key, algorithm="ES256", headers={"kid": self._kid}), now + seconds

    def verify(self, token: str, *audiences: str) -> Claims | None:
        """None for anything that is not a live token of this cluster for one of the audiences."""
        digest = (hashlib.sha256(token.encode(errors="replace")).digest(), audiences)
        known = self._verified.get(digest)
        if known is None:
            known = self._read(token, audiences)
            if known is None:
                return None
            if len(self._verified) >= _KNOWN:
                self._verified.clear()
            self._verified[digest] = known
        claims, begins, ends = known
        timely = begins <= self._clock.now().timestamp() < ends
        return claims if timely and self._alive(claims) else None

    def _read(self, token: str, audiences: tuple[str, ...]) -> tuple[Claims, float, float] | None:
        """What a token of this cluster says, and from when to when it counts."""
        try:
            payload = jwt.decode(
                token,
                self._public,
                algorithms=["ES256"],
                audience=list(audiences),
                issuer=self.issuer,
                # The times are checked by our own clock, and again with every use.
                options={
                    "require": ["exp", "iss", "sub", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
            private = payload["kubernetes.io"]
            claims = Claims(
                private["namespace"],
                private["serviceaccount"]["name"],
                private["serviceaccount"]["uid"],
                str(payload.get("jti", "")),
                tuple(audience for audience in audiences if audience in payload["aud"]),
                **{k: Bound(private[k]["name"], private[k]["uid"]) for k in ("pod", "node", "secret") if k in private},
            )
            return claims, float(payload.get("nbf", 0)), float(payload["exp"])
        except (jwt.PyJWTError, KeyError, TypeError, ValueError):
            return None

    def _alive(self, claims: Claims) -> bool:
        if self._uid_of("serviceaccounts", claims.namespace, claims.name) != claims.uid:
            return False
        bound = (
            ("pods", claims.namespace, claims.pod),
            ("secrets", claims.namespace, claims.secret),
            ("nodes", "", claims.node),
        )
        return all(
            self._uid_of(resource, namespace, ref.name) == ref.uid
            for resource, namespace, ref in bound
            if ref is not None
        )

    def configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }

    def key_set(self) -> dict[str, Any]:
        numbers = self._public.public_numbers()

        def coordinate(value: int) -> str:
            return base64.urlsafe_b64encode(value.to_bytes(32, "big")).rstrip(b"=").decode()

        return {
            "keys": [
                {
                    "use": "sig",
                    "kty": "EC",
                    "kid": self._kid,
                    "crv": "P-256",
                    "alg": "ES256",
                    "x": coordinate(numbers.x),
                    "y": coordinate(numbers.y),
                }
            ]
        }
