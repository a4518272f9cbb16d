from __future__ import annotations

from tests.cli.conftest import Place, Shell


async def completed(shell: Shell, line: str) -> list[str]:
    words = line.split(" ")
    asked = shell.having(
        _REGIONCTL_COMPLETE="bash_complete",
        COMP_WORDS=line,
        COMP_CWORD=str(len(words) - 1),
        PATH=shell.environment["PATH"],
    )
    result = await asked.run()
    assert result.err == "", result
    return [entry.partition(",")[2] for entry in result.out.split()]


async def test_names_of_clusters_pools_and_accounts_are_offered(place: Place) -> None:
    for name in ("demo", "dev-1", "other"):
        made = await place.own_clm.create("Cluster", name, {})
    await place.own_clm.create("NodePool", "workers", {}, parent_id=made["id"])
    shell = place.customer
    assert await completed(shell, "regionctl cluster describe d") == ["demo", "dev-1"]
    assert await completed(shell, "regionctl cluster delete dev") == ["dev-1"]
    assert await completed(shell, "regionctl nodepool describe w") == ["workers"]
    assert await completed(shell, "regionctl nodepool describe --cluster other ") == ["workers"]
    assert await completed(shell, "regionctl nodepool describe --cluster demo ") == []
    assert await completed(shell, "regionctl nodepool create --cluster o") == ["other"]
    assert await completed(shell, "regionctl trace de") == ["demo", "dev-1"]
    assert await completed(place.operator, "regionctl account delete ") == [place.account]
    assert await completed(shell, "regionctl clu") == ["cluster"]


async def test_a_shell_hears_nothing_when_the_region_does_not_answer(place: Place) -> None:
    for broken in ({"API_GATEWAY_URL": "127.0.0.1:1"}, {"API_GATEWAY_URL": None}, {"AWS_SECRET_ACCESS_KEY": "wrong"}):
        assert await completed(place.customer.having(**broken), "regionctl cluster describe d") == []
    # Maestro is away here, and a customer may not ask about it anyway.
    assert await completed(place.customer, "regionctl bundle describe ") == []
