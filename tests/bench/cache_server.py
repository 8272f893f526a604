"""An API server that says one thing, as fast as it can: pods and nodes rendered beforehand, in a process of its own.

`python -m tests.bench.cache_server PODS NODES EVENTS` prints its port once everything is rendered.  A watch of the pods waits for
POST /go, then sends EVENTS changes, each of another revision, and a bookmark of the revision "done".
"""

import asyncio
import json
import sys
from contextlib import suppress

from aiohttp import web

POD_BYTES, OWNERS, NAMESPACES, PAGE = 4096, 500, 50, 500
NONE = [b'{"metadata":{"resourceVersion":"9"},"items":[]}']  # of every other kind
CHUNK_BYTES = 64 * 1024  # about what a busy socket hands over at once


def pod_text(owner: int) -> str:
    """A pod of this owner with places for its number, node and revision, padded to its size with what nobody reads."""
    access = [{"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute"} for why in ("a", "b")]
    pod = {
        "metadata": {
            "name": f"app-{owner}-@number@",
            "namespace": f"ns-{owner % NAMESPACES}",
            "uid": "uid-@number@",
            "resourceVersion": "@revision@",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": f"app-{owner}", "pod-template-hash": "5d9c8"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"app-{owner}", "uid": "o", "controller": True}
            ],
        },
        "spec": {
            "nodeName": "node-@node@",
            "schedulerName": "default-scheduler",
            "priority": 0,
            "restartPolicy": "Always",
            "tolerations": [{**each, "tolerationSeconds": 300} for each in access],
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/app:1",
                    "resources": {"requests": {"cpu": f"{50 + owner}m", "memory": "128Mi"}},
                    "env": [{"name": f"VARIABLE_{number}", "value": "something"} for number in range(20)],
                    "volumeMounts": [{"name": "kube-api-access-@number@", "mountPath": "/var/run/secrets"}],
                }
            ],
            "volumes": [{"name": "kube-api-access-@number@", "projected": {"sources": [{"downwardAPI": {}}]}}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [
                {"type": type_, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for type_ in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
        },
    }
    text = json.dumps(pod, separators=(",", ":"))
    padding = "x" * (POD_BYTES - len(text) - len(',"hostname":""'))
    return text[:-1] + f',"hostname":"{padding}"}}'


class Pods:
    """Pods by number."""

    def __init__(self, nodes: int) -> None:
        self._texts = [pod_text(owner) for owner in range(OWNERS)]
        self._nodes = nodes

    def render(self, number: int, revision: int) -> bytes:
        text = self._texts[number % OWNERS].replace("@number@", f"{number:06}")
        return text.replace("@node@", str(number % self._nodes)).replace("@revision@", str(revision)).encode()


def node(number: int) -> bytes:
    """A node with room for its pods."""
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    body = {
        "metadata": {"name": f"node-{number}", "resourceVersion": "5", "annotations": {"unread": "x" * 3_000}},
        "spec": {"providerID": f"aws:///eu-central-1a/i-{number:017x}"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return json.dumps(body).encode()


def pages(items: list[bytes]) -> list[bytes]:
    """The items as pages of a list."""
    rendered = []
    for start in range(0, len(items), PAGE):
        token = str(start // PAGE + 1) if start + PAGE < len(items) else ""
        head = f'{{"metadata":{{"resourceVersion":"9","continue":"{token}"}},"items":['
        rendered.append(head.encode() + b",".join(items[start : start + PAGE]) + b"]}")
    return rendered


class Server:
    """What was rendered, and how it is asked for."""

    def __init__(self, pods: int, nodes: int, events: int) -> None:
        source = Pods(nodes)
        self._pages = {
            "pods": pages([source.render(number, 5) for number in range(pods)]),
            "nodes": pages([node(number) for number in range(nodes)]),
        }
        self._events = b"".join(
            b'{"type":"MODIFIED","object":' + source.render(number % pods, 10 + number) + b"}\n"
            for number in range(events)
        )
        self._go = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if kind == "go":
            self._go.set()
            return web.json_response({})
        if "watch" in request.query:
            return await self._watch(request, kind)
        return web.Response(body=self._pages.get(kind, NONE)[int(request.query.get("continue") or 0)])

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await self._go.wait()
        if kind == "pods":
            with suppress(ConnectionResetError):  # of a client that is gone since
                for start in range(0, len(self._events), CHUNK_BYTES):
                    await response.write(self._events[start : start + CHUNK_BYTES])
                await response.write(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"done"}}}\n')
        await asyncio.Event().wait()
        return response


async def main(pods: int, nodes: int, events: int) -> None:
    """Serve until killed."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", Server(pods, nodes, events).answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:4])))
