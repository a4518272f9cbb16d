"""`regionctl account`: which accounts may use the region, and which may run it."""

from __future__ import annotations

import click

from regional.cli.cluster import confirm
from regional.cli.customer import Completions, Session, api_command
from regional.cli.output import age, output_option, print_table, print_value
from regional.core.problems import UserError

ACCOUNTS = "/api/v0/accounts"


@click.group()
def account() -> None:
    """Accounts that may use the region. Needs an account that may run it.

    \b
    Examples:
      regionctl account list
      regionctl account create 123456789012
      regionctl account delete 123456789012 --yes
    """


@account.command("list")
@output_option
@api_command
def list_accounts(session: Session, output: str) -> int:
    """Accounts that were let in, newest first."""
    found = list(session.pages(ACCOUNTS))
    if output in ("json", "yaml"):
        print_value({"kind": "AccountList", "total": len(found), "items": found}, output)
        return 0
    rows = [(a["accountId"], "yes" if a["privileged"] else "no", age(a.get("created_at", ""))) for a in found]
    print_table(("ACCOUNT", "RUNS THE REGION", "AGE"), rows)
    return 0


@account.command("create")
@click.argument("account_id")
@click.option("--privileged", is_flag=True, help="It may run the region too: management clusters, work, accounts.")
@output_option
@api_command
def create_account(session: Session, account_id: str, privileged: bool, output: str) -> int:
    """Let account ACCOUNT_ID (12 digits) use the region."""
    made = session.call("POST", ACCOUNTS, {"accountId": account_id, "privileged": privileged}).json()
    if output in ("json", "yaml"):
        print_value(made, output)
    else:
        click.echo(f"account {made['accountId']} may use the region" + (" and run it" if privileged else ""))
    return 0


@account.command("describe")
@click.argument("account_id", shell_complete=Completions.accounts)
@output_option
@api_command
def describe_account(session: Session, account_id: str, output: str) -> int:
    """One account."""
    from regional.cli.described import facts

    found = session.get(_account_path(account_id))
    if output in ("json", "yaml"):
        print_value(found, output)
    else:
        runs = "yes" if found["privileged"] else "no"
        facts([("Account", found["accountId"]), ("Runs the region", runs), ("Since", found.get("created_at", ""))])
    return 0


@account.command("delete")
@click.argument("account_id", shell_complete=Completions.accounts)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@api_command
def delete_account(session: Session, account_id: str, yes: bool) -> int:
    """Withdraw an account that has no clusters; its requests are refused from then on."""
    path = _account_path(account_id)
    session.get(path)
    confirm(f"Withdraw account {account_id}?", yes)
    session.call("DELETE", path)
    click.echo(f"account {account_id} is withdrawn")
    return 0


def _account_path(account_id: str) -> str:
    if not (account_id.isascii() and account_id.isdigit()):
        raise UserError(f"{account_id!r} is not an account id: 12 digits", exit_code=2)
    return f"{ACCOUNTS}/{account_id}"
