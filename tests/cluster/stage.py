"""The stage of the walk-throughs: real control plane, emulated AWS, hollow machines, and the product as the Deployment's pod.

    async with openshift_stage(control_plane) as stage:
        with stage.autoscaler("--scan-interval=1s") as process:
            ...

Invariant: the published files are applied with kubectl as they are, but for their placeholders and RBAC's apiVersion.
"""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from nobiru.kube.client import Client
from nobiru.kube.connect import connect
from nobiru.sim.asg_state import Timing
from nobiru.sim.cloud import Cloud
from nobiru.sim.kubelet_model import Kubelets, StaticNode
from nobiru.sim.world import OPENSHIFT_COMPUTE, World, WorldConfig, openshift_nodes
from tests.cluster.controlplane.control_plane import ControlPlane
from tests.cluster.controlplane.manifests import CLUSTER_READER, fill, openshift_rbac_modern, walkthrough
from tests.cluster.controlplane.pod_process import PodProcess, as_cluster_autoscaler, run_as_pod
from tests.cluster.controlplane.processes import free_ports

REGION = "ap-northeast-1"
GROUP = "my cluster openshift compute"
NAMESPACE = "cluster-autoscaler"
PROJECT = "autoscaler-demo"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:cluster-autoscaler"
LABEL_TAG = "k8s.io/cluster-autoscaler/node-template/label/node-role.kubernetes.io/compute"
TAGS = {LABEL_TAG: "true", "kubernetes.io/cluster/my": "owned"}
# What shortens the waits of a walk-through that its readers watch for half an hour; appended to the Deployment's own words.
QUICK = (
    "--scale-down-unneeded-time=2s",
    "--scale-down-delay-after-add=1s",
    "--node-delete-delay-after-taint=500ms",
    "--scan-interval=1s",
)
Answer = TypeVar("Answer")


class Stage:
    """What a test works with."""

    def __init__(self, control_plane: ControlPlane, cloud: Cloud, world: World, client: Client, manifest: str) -> None:
        self.control_plane, self.cloud, self.world, self.client = control_plane, cloud, world, client
        self.manifest = manifest
        self.port = 0

    def autoscaler(self, *flags: str, group: str = GROUP, serve: bool = True) -> PodProcess:
        """The product, started as the Deployment's pod with these words after its own."""
        self.port = free_ports(1)[0]
        more = [*flags, f"--address=127.0.0.1:{self.port}"] if serve else list(flags)
        manifest = fill(self.manifest, **{"Auto Scaling Group名": group})
        environment = {"AWS_ENDPOINT_URL": self.cloud.endpoint_url}
        return run_as_pod(
            self.control_plane,
            manifest,
            command_rewrite=lambda words: [*as_cluster_autoscaler(words), *more],
            extra_env=environment,
        )

    async def desired(self, group: str = GROUP) -> int:
        return (await self.cloud.group(group)).desired

    async def raises(self, group: str = GROUP) -> list[int]:
        """Every desired capacity that SetDesiredCapacity set, in order."""
        calls = (await self.cloud.calls()).calls
        return [call.desired_after for call in calls if call.action == "SetDesiredCapacity" and call.group == group]

    async def kubectl(self, *words: str, input: str | None = None) -> str:
        return await asyncio.to_thread(self.control_plane.kubectl, *words, input=input)

    async def apply(self, text: str, namespace: str | None = None) -> None:
        await asyncio.to_thread(self.control_plane.apply, text, namespace)

    async def events(self, reason: str, namespace: str = "") -> list[dict[str, Any]]:
        """The events with that reason, in all namespaces or one."""
        where = ["-n", namespace] if namespace else ["-A"]
        text = await self.kubectl("get", "events", *where, f"--field-selector=reason={reason}", "-o", "json")
        items: list[dict[str, Any]] = json.loads(text)["items"]
        return items

    async def plans(self) -> list[dict[str, Any]]:
        """The journal, as the admin reads it."""
        return await asyncio.to_thread(self._plans, self.control_plane.site.tokens["admin"])

    def _plans(self, token: str) -> list[dict[str, Any]]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/nobiru/v1/plans", headers={"Authorization": f"Bearer {token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                found: list[dict[str, Any]] = json.load(answer)["plans"]
                return found
        except (urllib.error.URLError, ConnectionError):
            return []

    async def until(
        self, what: str, check: Callable[[], Awaitable[Answer | None]], timeout_s: float = 30.0, pause_s: float = 0.05
    ) -> Answer:
        """The first true answer of a check that must ask somebody.  Raises TimeoutError that names `what`."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < deadline:
            answer = await check()
            if answer:
                return answer
            await asyncio.sleep(pause_s)
        raise TimeoutError(f"not within {timeout_s:g} s: {what}")

    async def until_desired(self, wanted: int, group: str = GROUP, timeout_s: float = 30.0) -> None:
        async def check() -> bool:
            return await self.desired(group) == wanted

        await self.until(f"desired capacity {wanted} of {group}", check, timeout_s)


@asynccontextmanager
async def openshift_stage(
    control_plane: ControlPlane,
    *,
    tags: dict[str, str] | None = None,
    boot_ms: int = 1_000,
    prepare: Callable[[Cloud], Awaitable[None]] | None = None,
) -> AsyncIterator[Stage]:
    """The OpenShift walk-through's cluster up to the point where its reader applies the Deployment."""
    async with AsyncExitStack() as stack:
        timing = Timing(launch_ms=200, pending_ms=300, boot_ms=boot_ms, terminating_ms=300)
        cloud = await stack.enter_async_context(Cloud.start(region=REGION, timing=timing))
        await cloud.create_launch_configuration("compute", instance_type="m5.large")
        await cloud.create_group(GROUP, 0, 6, 0, configuration="compute", tags=TAGS if tags is None else tags)
        if prepare is not None:
            await prepare(cloud)
        client = connect(str(control_plane.kubeconfig_path()))
        stack.push_async_callback(client.aclose)
        kubelets = Kubelets(default=OPENSHIFT_COMPUTE, static=openshift_nodes())
        world = await stack.enter_async_context(World(cloud, client, WorldConfig(kubelets=kubelets, lifecycle_ms=500)))
        await world.wait_for_nodes(3)
        stage = Stage(control_plane, cloud, world, client, walkthrough("openshift/cluster-autoscaler.yaml"))
        await install(stage)
        try:
            yield stage
        finally:
            await clean_up(stage)


EKS_NAMESPACE = "kube-system"
EKS_NODE = StaticNode(
    name="ip-10-0-9-10.ap-northeast-1.compute.internal",
    private_ip="10.0.9.10",
    zone=f"{REGION}a",
    instance_id="i-0000000000000ffff",
)


class EksStage(Stage):
    """The EKS walk-through's cluster: the process has the article's IAM policy, as kube2iam would give it."""

    environment: dict[str, str]

    def pod(self, *flags: str, host_root: Path) -> PodProcess:
        """The product, started as the completed Deployment's pod on a node with that file system."""
        self.port = free_ports(1)[0]
        more = [*flags, f"--address=127.0.0.1:{self.port}"]
        return run_as_pod(
            self.control_plane,
            deployment_of(self.manifest),
            command_rewrite=lambda words: [*as_cluster_autoscaler(words), *more],
            extra_env=self.environment,
            host_root=host_root,
        )


def deployment_of(manifest: str) -> dict[str, Any]:
    """The Deployment among a manifest's documents."""
    found: dict[str, Any] = next(each for each in yaml.safe_load_all(manifest) if each["kind"] == "Deployment")
    return found


@asynccontextmanager
async def eks_stage(
    control_plane: ControlPlane,
    groups: Callable[[Cloud], Awaitable[None]],
    *,
    kubelets: Kubelets | None = None,
    timing: Timing | None = None,
    more_actions: tuple[str, ...] = (),
) -> AsyncIterator[EksStage]:
    """The EKS walk-through's cluster with the groups that `groups` makes, up to where its reader starts the Deployment."""
    async with AsyncExitStack() as stack:
        timing = timing or Timing(launch_ms=200, pending_ms=300, boot_ms=1_000, terminating_ms=300)
        cloud = await stack.enter_async_context(Cloud.start(region=REGION, timing=timing))
        await groups(cloud)
        client = connect(str(control_plane.kubeconfig_path()))
        stack.push_async_callback(client.aclose)
        kubelets = kubelets or Kubelets(static=(EKS_NODE,))
        world = await stack.enter_async_context(World(cloud, client, WorldConfig(kubelets=kubelets, lifecycle_ms=500)))
        await world.wait_for_nodes(len(kubelets.static))
        stage = EksStage(control_plane, cloud, world, client, walkthrough("eks/cluster-autoscaler.yaml"))
        policy = json.loads(walkthrough("eks/clusterAutoscale-iam-policy.json"))
        policy["Statement"][0]["Action"] += more_actions
        stage.environment = cloud.environment(await cloud.create_iam_user(json.dumps(policy)))
        # The Deployment's own pod would wait for an image; the process here is that pod.
        documents = [each for each in yaml.safe_load_all(stage.manifest) if each["kind"] != "Deployment"]
        await stage.apply(yaml.safe_dump_all(documents))
        await asyncio.to_thread(control_plane.namespace, PROJECT)
        try:
            yield stage
        finally:
            await stage.kubectl("delete", "namespace", PROJECT, "--ignore-not-found", "--wait=true")
            await stage.kubectl("delete", "nodes", "--all")
            for kind in ("configmap/cluster-autoscaler-status", "endpoints/cluster-autoscaler"):
                await stage.kubectl("delete", kind, "-n", EKS_NAMESPACE, "--ignore-not-found")


async def install(stage: Stage) -> None:
    """What the article's reader types, file by file."""
    cloud = stage.cloud
    await stage.apply(walkthrough("openshift/namespace.yaml"))
    await stage.apply(walkthrough("openshift/serviceaccount.yaml"), NAMESPACE)
    await stage.apply(openshift_rbac_modern(walkthrough("openshift/clusterrole.yaml")))
    await stage.apply(openshift_rbac_modern(walkthrough("openshift/role.yaml")), NAMESPACE)
    await stage.apply(CLUSTER_READER)
    await stage.apply(binding("cluster-autoscaler", "ClusterRole", "cluster-autoscaler"))
    await stage.apply(binding("cluster-autoscaler", "Role", "cluster-autoscaler"), NAMESPACE)
    await stage.apply(binding("cluster-reader", "ClusterRole", "cluster-reader"))
    key = await cloud.create_iam_user(walkthrough("openshift/iam-policy.json"))
    creds = walkthrough("openshift/creds").replace("your-aws-access-key-id", key.access_key_id)
    creds = creds.replace("your-aws-secret-access-key", key.secret_access_key)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "autoscaler-credentials"},
        "stringData": {"creds": creds},
    }
    await stage.apply(yaml.safe_dump(secret), NAMESPACE)
    deployment = fill(walkthrough("openshift/cluster-autoscaler.yaml"), **{"Auto Scaling Group名": GROUP})
    await stage.apply(deployment)
    await asyncio.to_thread(stage.control_plane.namespace, PROJECT)


def binding(name: str, kind: str, role: str, account: str = ACCOUNT) -> str:
    """A role or cluster role bound to a ServiceAccount."""
    _, _, namespace, account_name = account.split(":")
    cluster = kind == "ClusterRole"
    return yaml.safe_dump(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding" if cluster else "RoleBinding",
            "metadata": {"name": f"{name}-binding"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account_name, "namespace": namespace}],
        }
    )


EVICTION_ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: evict}
rules:
- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}
"""


async def clean_up(stage: Stage) -> None:
    """Leave the control plane as it was: no namespaces, roles or nodes of ours."""
    for kind, names in (
        ("namespace", (PROJECT, NAMESPACE)),
        ("clusterrole", ("cluster-autoscaler", "cluster-reader", "evict")),
        ("clusterrolebinding", ("cluster-autoscaler-binding", "cluster-reader-binding", "evict-binding")),
    ):
        await stage.kubectl("delete", kind, *names, "--ignore-not-found", "--wait=true")
    await stage.kubectl("delete", "nodes", "--all")
