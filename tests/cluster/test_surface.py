"""What an operator sees of the running product: status ConfigMap, events, metrics, health, a dry run, a pause."""

import asyncio
import urllib.request

import yaml

from tests.cluster.controlplane.control_plane import ControlPlane
from tests.cluster.controlplane.manifests import walkthrough
from tests.cluster.stage import GROUP, NAMESPACE, PROJECT, QUICK, Stage, openshift_stage


async def get(stage: Stage, path: str) -> str:
    """The text that the product's port answers."""

    def fetch() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{stage.port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(fetch)


async def test_dry_run_then_pause_then_the_real_thing(own_control_plane: ControlPlane) -> None:
    """A dry run says what it would do and leaves no trace; a pause holds; then it acts, and everything shows it."""
    async with openshift_stage(own_control_plane) as stage:
        await stage.apply(walkthrough("openshift/scale-up.yaml"), PROJECT)
        with stage.autoscaler(*QUICK, "--dry-run") as process:

            async def said() -> bool:
                return "would raise desired capacity" in process.log()

            await stage.until("the dry run says what it would do", said)
            assert await stage.desired() == 0
            left = await stage.kubectl("get", "configmaps", "-n", NAMESPACE, "-o", "name")
            assert "cluster-autoscaler" not in left.replace("kube-root-ca.crt", "")
            assert await stage.events("TriggeredScaleUp") == []

        pausing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-autoscaler-status"}}
        pausing["metadata"]["annotations"] = {"nobiru.io/pause": "all"}  # type: ignore[index]
        await stage.apply(yaml.safe_dump(pausing), NAMESPACE)
        with stage.autoscaler(*QUICK, "--emit-per-nodegroup-metrics") as process:

            async def paused() -> bool:
                return "PAUSED" in process.log()

            await stage.until("the pause is said", paused)
            assert await stage.desired() == 0
            await stage.kubectl(
                "annotate", "configmap", "cluster-autoscaler-status", "-n", NAMESPACE, "nobiru.io/pause-"
            )
            await stage.world.wait_for_pods(20, PROJECT, app="scale-up", timeout_s=40)

            metrics = await get(stage, "/metrics")
            assert "cluster_autoscaler_scaled_up_nodes_total{" in metrics
            assert f'cluster_autoscaler_node_group_max_count{{node_group="{GROUP}"}} 6.0' in metrics
            assert "cluster_autoscaler_aws_request_duration_seconds_bucket" in metrics
            assert await get(stage, "/health-check") == "OK"
            assert [event["reason"] for event in await stage.events("ScaledUpGroup", NAMESPACE)] == ["ScaledUpGroup"]

            async def shown() -> bool:
                text = await stage.kubectl(
                    "get", "configmap", "cluster-autoscaler-status", "-n", NAMESPACE, "-o", "jsonpath={.data.status}"
                )
                status = yaml.safe_load(text)
                health = status["nodeGroups"][0]["health"]
                return bool(health["cloudProviderTarget"] == 5 and health["nodeCounts"]["registered"]["ready"] == 5)

            await stage.until("the status shows five ready nodes", shown)
            await asyncio.to_thread(process.stop)
            assert process.returncode == 0, "told to stop is no failure"
