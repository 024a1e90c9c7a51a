"""Everything that python-zaqarclient has for pools, flavors and health, against the server of the first argument."""

from zaqarclient.transport import errors

from connected import fails, zaqar


def pools():
    ours = zaqar()
    assert [pool.name for pool in ours.pools()] == ["default"]
    for number in range(12):
        ours.pool(f"pool-{number:02}", uri=f"embedded:pools/{number}", weight=number)
    walked = [pool.name for pool in ours.pools(limit=5).stream()]
    assert walked == ["default"] + [f"pool-{number:02}" for number in range(12)], walked
    pool = ours.pool("pool-03", auto_create=False)
    assert pool.get()["weight"] == 3, pool.get()
    pool.update({"weight": 30})
    assert pool.get()["weight"] == 30, pool.get()
    pool.delete()
    fails(errors.ResourceNotFound, pool.get)
    fails(errors.MalformedRequest, ours.pool, "bad", uri="nowhere", weight=1)


def flavors():
    ours = zaqar()
    for name in ("fast-1", "fast-2"):
        ours.pool(name, uri=f"embedded:pools/{name}", weight=10)
    flavor = ours.flavor("fast", pool_list=["fast-1"])
    assert flavor.get()["pool_list"] == ["fast-1"], flavor.get()
    flavor.update({"pool_list": ["fast-1", "fast-2"]})
    assert sorted(flavor.get()["pool_list"]) == ["fast-1", "fast-2"], flavor.get()
    assert [found.name for found in ours.flavors()] == ["fast"]
    fails(errors.MalformedRequest, ours.flavor, "none", pool_list=["missing"])
    flavor.delete()
    fails(errors.ResourceNotFound, flavor.get)


def health():
    assert "default" in str(zaqar().health())


if __name__ == "__main__":
    for part in (pools, flavors, health):
        print(part.__name__, flush=True)
        part()
