"""Who is asking: a client certificate's subject, a service account's token, or nobody; and whom they speak for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from regional.kube.apiserver.errors import bad_request, unauthorized
from regional.kube.apiserver.tokens import TokenIssuer
from regional.kube.messages import ANONYMOUS, User

AUTHENTICATED = "system:authenticated"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
_SERVICE_ACCOUNT = "system:serviceaccount:"


def certificate_user(subject: Mapping[str, Any] | None, der: bytes | None) -> User | None:
    """The user of a verified peer certificate, in the form `ssl` gives it; None if there is none."""
    if not subject or der is None:
        return None
    attributes = [pair for relative in subject.get("subject", ()) for pair in relative]
    names = [value for key, value in attributes if key == "commonName"]
    if not names:
        return None
    groups = tuple(value for key, value in attributes if key == "organizationName")
    fingerprint = hashlib.sha256(der).hexdigest()
    return User(names[0], (*groups, AUTHENTICATED), extra={CREDENTIAL_ID: [f"X509SHA256={fingerprint}"]})


def service_account_user(namespace: str, name: str, uid: str, extra: dict[str, list[str]] | None = None) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"{_SERVICE_ACCOUNT}{namespace}:{name}", groups, uid, extra or {})


def authenticate(headers: Mapping[str, str], certificate: User | None, tokens: TokenIssuer) -> User:
    if certificate is not None:
        return certificate
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return ANONYMOUS  # no credential of a kind that is known here
    claims = tokens.verify(token.strip(), tokens.own_audience)
    if claims is None:
        raise unauthorized()
    return service_account_user(claims.namespace, claims.name, claims.uid, claims.extra())


Allowed = Callable[[User, str, str, str, str], bool]  # user, API group, resource, namespace, name


def impersonate(
    user: User, headers: Mapping[str, str], allowed: Allowed
) -> tuple[User, list[tuple[str, str, str, str]]]:
    """The user to act as, and the (group, resource, namespace, name) that `user` was refused."""
    name = headers.get("impersonate-user", "")
    groups = [group.strip() for group in headers.get("impersonate-group", "").split("\n") if group.strip()]
    uid = headers.get("impersonate-uid", "")
    extra = {
        unquote(key.removeprefix("impersonate-extra-")): value.split("\n")
        for key, value in headers.items()
        if key.startswith("impersonate-extra-")
    }
    if not (name or groups or uid or extra):
        return user, []
    if not name:
        # The real server prints the object references it made of the headers.
        asked_for = [f"{{Group  {group}    }}" for group in groups]
        asked_for += [f"{{UID  {uid}  authentication.k8s.io/v1  }}"] if uid else []
        asked_for += [
            f"{{UserExtra  {value}  authentication.k8s.io/v1 {key} }}" for key in extra for value in extra[key]
        ]
        raise bad_request(f"requested [{' '.join(asked_for)}] without impersonating a user")
    authentication = "authentication.k8s.io"
    asked: list[tuple[str, str, str, str]] = []
    if name.startswith(_SERVICE_ACCOUNT) and name.count(":") == 3:
        _, _, namespace, account = name.split(":")
        asked.append(("", "serviceaccounts", namespace, account))
        if not groups:
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    else:
        asked.append(("", "users", "", name))
    asked += [("", "groups", "", group) for group in groups if group != AUTHENTICATED]
    if uid:
        asked.append((authentication, "uids", "", uid))
    asked += [(authentication, f"userextras/{key}", "", value) for key, values in extra.items() for value in values]
    refused = [item for item in asked if not allowed(user, *item)]
    everyone = "system:unauthenticated" if name == ANONYMOUS.name else AUTHENTICATED
    return User(name, tuple(dict.fromkeys((*groups, everyone))), uid, extra), refused
