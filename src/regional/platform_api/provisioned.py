"""Accounts that may use the region: added, shown and withdrawn by those who run it."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from regional.platform_api import shapes, views
from regional.platform_api.accounts import KIND
from regional.platform_api.errors import ApiError, not_found
from regional.platform_api.operations import Call, Operation, reply
from regional.platform_api.paging import PAGING, page_of


async def create(call: Call) -> Response:
    account_id = call.body["accountId"]
    spec = {"accountId": account_id, "privileged": call.body.get("privileged", False)}
    made = await call.clm_of_region.create(KIND, account_id, spec, request_id=call.request_id)
    call.region.accounts.forget(account_id)
    return reply(views.account(made), 201)


async def list_all(call: Call) -> Response:
    found = await page_of(call, KIND, of_region=True)
    items = [views.account(resource) for resource in found.items]
    return reply({"kind": "AccountList", "items": items} | found.counters())


async def get(call: Call) -> Response:
    return reply(views.account(await _found(call)))


async def delete(call: Call) -> Response:
    resource = await _found(call)
    account_id = resource["name"]
    used = await call.region.clm.for_tenant(account_id).list("Cluster", size=1)
    if used["total"]:
        raise ApiError(409, "account-in-use", f"account {account_id} has {used['total']} clusters: delete them first")
    await call.clm_of_region.delete(KIND, resource["id"], request_id=call.request_id)
    call.region.accounts.forget(account_id)
    return reply({"message": "the account is withdrawn", "accountId": account_id})


async def _found(call: Call) -> dict[str, Any]:
    given = call.path["id"]
    found = await call.clm_of_region.find(KIND, given) if given.isascii() and given.isdigit() else None
    if found is None:
        raise not_found("account", given)
    return found


OPERATIONS = (
    Operation(
        method="POST",
        path="/accounts",
        name="createAccount",
        summary="Let an account use the region.",
        run=create,
        who="privileged",
        body=shapes.CREATE_ACCOUNT,
        success=201,
        answer=shapes.ACCOUNT,
        refusals=(409,),
    ),
    Operation(
        method="GET",
        path="/accounts",
        name="listAccounts",
        summary="Accounts that may use the region.",
        run=list_all,
        who="privileged",
        query=PAGING,
        answer=shapes.listing("AccountList", shapes.ACCOUNT, "total", "limit", "offset"),
    ),
    Operation(
        method="GET",
        path="/accounts/{id}",
        name="getAccount",
        summary="One account, by its 12 digits.",
        run=get,
        who="privileged",
        answer=shapes.ACCOUNT,
        refusals=(404,),
    ),
    Operation(
        method="DELETE",
        path="/accounts/{id}",
        name="deleteAccount",
        summary="Withdraw an account that has no clusters.",
        run=delete,
        who="privileged",
        answer={"type": "object"},
        refusals=(404, 409),
    ),
)
