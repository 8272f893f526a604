"""Old and new servers are spoken to in their own versions; one that will not tell is taken for a current one."""

import pytest
from aiohttp import web

from nobiru.kube.client import PDBS, PDBS_BETA, Resource
from tests.unit.kube.server import serving, status

# What servers list of `pods/eviction` at /api/v1, and what they answer at /apis/policy/v1.
SERVERS: list[tuple[str, str, int, str, Resource]] = [
    ("1.11 (OpenShift 3.11)", "v1beta1", 404, "v1beta1", PDBS_BETA),
    ("1.21: new budgets, old evictions", "v1beta1", 200, "v1beta1", PDBS),
    ("1.22", "v1", 200, "v1", PDBS),
    ("1.36, refusing the second question", "v1", 403, "v1", PDBS),
    ("1.36, in trouble at the second question", "v1", 503, "v1", PDBS),
    ("refuses both", "", 403, "v1", PDBS),
]


@pytest.mark.parametrize(("name", "listed", "policy", "eviction", "budgets"), SERVERS, ids=[row[0] for row in SERVERS])
async def test_versions(name: str, listed: str, policy: int, eviction: str, budgets: Resource) -> None:
    """Budgets are read, and evictions sent, in a version that the server has."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1":
            if not listed:
                return status(403)
            entry = {"name": "pods/eviction", "group": "policy", "version": listed, "kind": "Eviction"}
            return web.json_response({"resources": [{"name": "pods", "kind": "Pod"}, entry]})
        if policy != 200:
            return status(policy)
        return web.json_response({"resources": [{"name": "poddisruptionbudgets", "kind": "PodDisruptionBudget"}]})

    async with serving(answer) as client:
        assert await client.discover() == budgets
        assert client.eviction_version == eviction
