"""The journal is shown to whom a real API server allows it, judged with the rights that nobiru's own account has."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from nobiru.cli.wire import ApiAuthorizer
from nobiru.kube.client import Client
from nobiru.kube.connect import connect
from nobiru.sinks.serve import PLANS_PATH, make_app, serving
from tests.cluster.controlplane.control_plane import ControlPlane

NAMESPACE = "journal"
ACCOUNTS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: judge}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: nobody}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: journal-judge}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}
subjects: [{kind: ServiceAccount, name: judge, namespace: journal}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: journal-reader}
rules: [{nonResourceURLs: [/nobiru/v1/plans], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: journal-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: journal-reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: journal}]
"""

CASES = [
    #  judging   asking    status  text
    ("judge", "reader", 200, '{"plans":[]}'),
    (
        "judge",
        "nobody",
        403,
        f"system:serviceaccount:journal:nobody may not get {PLANS_PATH}: grant the nonResourceURL\n",
    ),
    ("judge", "", 401, "the token is not valid\n"),
    (
        "nobody",
        "reader",
        403,
        "nobiru may not ask the API server about you: grant nobiru's account the ClusterRole system:auth-delegator\n",
    ),
]


@pytest.fixture(scope="module")
def accounts(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with the three accounts."""
    control_plane.namespace(NAMESPACE)
    control_plane.apply(ACCOUNTS, NAMESPACE)
    return control_plane


def client_of(control_plane: ControlPlane, account: str, path: Path) -> Client:
    control_plane.write_kubeconfig(path, token=control_plane.service_account_token(NAMESPACE, account))
    return connect(str(path))


@pytest.mark.parametrize(
    ("judging", "asking", "status", "text"),
    CASES,
    ids=[f"{case[1] or 'a stranger'} before {case[0]}" for case in CASES],
)
async def test_the_journal(
    accounts: ControlPlane, tmp_path: Path, judging: str, asking: str, status: int, text: str
) -> None:
    """Allowed, not allowed, unknown; and an account of nobiru's that may not ask shows nothing and says what it lacks."""
    client = await asyncio.to_thread(client_of, accounts, judging, tmp_path / "kubeconfig")
    token = await asyncio.to_thread(accounts.service_account_token, NAMESPACE, asking) if asking else "stranger"
    app = make_app(
        metrics=bytes,
        health=lambda: (200, "OK"),
        plans=lambda last: b'{"plans":[]}',
        authorizer=ApiAuthorizer(client),
    )
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with (
            serving(app, "127.0.0.1:0") as port,
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{PLANS_PATH}", headers=headers) as answer,
        ):
            assert (answer.status, await answer.text()) == (status, text)
    finally:
        await client.aclose()
