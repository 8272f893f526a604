"""An API server and a cloud in memory for the kubelets' tests, with faults: enough of the wire for what kubelets ask.

Nodes, pods and Leases can be created, patched (merge), deleted, listed and watched.  What a real API server does with the
same calls, `tests/cluster/test_world.py` shows.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx

from nobiru.kernel.errors import CloudUnavailable
from nobiru.kube.client import Client
from nobiru.sim.cloud_api import CloudInstance, InstanceList

Json = dict[str, Any]


class LoopClock:
    """The event loop's own time, from 2026-12-01 on."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return 1_796_083_200_000 + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        """Milliseconds of the loop."""
        return round(asyncio.get_running_loop().time() * 1000)


class FakeApi(httpx.AsyncBaseTransport):
    """The API server; `faults` are statuses that the next calls get, by method and the last word of their path's kind."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}  # by path
        self.calls: list[tuple[int, str, str]] = []  # when (ms), method, path; without lists and watches
        self.faults: list[int] = []
        self.poison = ""  # every call whose path has this fails with 500
        self.down = False
        self.latency_ms = 1
        self.reply_ms = 0  # from the change until its answer
        self.watch_lag_ms = 0
        self.refused = 0  # calls that found it down
        self.busy = self.busy_max = 0
        self._numbers = itertools.count(1)
        self._revision = 0
        self._log: list[tuple[int, str, str, Json]] = []  # revision, kind, event type, object
        self._news = asyncio.Event()

    def client(self) -> Client:
        """A client of it."""
        return Client(httpx.AsyncClient(base_url="http://api.invalid", transport=self), "http://api.invalid")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        if self.down:
            self.refused += 1
            raise httpx.ConnectError("connection refused")
        query = dict(request.url.params)
        path = request.url.path
        if request.method == "GET" and path.rpartition("/")[2] in ("nodes", "pods"):
            return self._watch(path, int(query["resourceVersion"])) if "watch" in query else self._list(path)
        self.busy += 1
        self.busy_max = max(self.busy_max, self.busy)
        try:
            await asyncio.sleep(self.latency_ms / 1000)
        finally:
            self.busy -= 1
        if self.down:
            raise httpx.ReadError("connection reset")
        self.calls.append((LoopClock().monotonic_ms(), request.method, path))
        if self.poison and self.poison in path:
            return _answer(500, {"message": "poison"})
        if self.faults:
            return _answer(self.faults.pop(0), {"message": "a fault"})
        body = json.loads(request.content) if request.content else {}
        answer = self._change(request.method, path.removesuffix("/status"), body)
        await asyncio.sleep(self.reply_ms / 1000)
        return answer

    def _change(self, method: str, path: str, body: Json) -> httpx.Response:
        known = self.objects.get(path)
        match method:
            case "POST":
                path = f"{path}/{body['metadata']['name']}"
                if path in self.objects:
                    return _answer(409, {"message": "already exists"})
                return _answer(201, self.put(path, body))
            case _ if known is None:
                return _answer(404, {"message": "not found"})
            case "GET":
                return _answer(200, known)
            case "PATCH":
                uid = body.get("metadata", {}).pop("uid", known["metadata"]["uid"])
                if uid != known["metadata"]["uid"]:
                    return _answer(409, {"message": "the uid differs"})
                return _answer(200, self.put(path, merged(known, body)))
            case "DELETE":
                wanted = body.get("preconditions", {}).get("uid")
                if wanted not in (None, known["metadata"]["uid"]):
                    return _answer(409, {"message": "the uid differs"})
                self.delete(path)
                return _answer(200, {"kind": "Status"})
        return _answer(405, {"message": method})

    def put(self, path: str, body: Json) -> Json:
        """Store an object, with a uid if it is new, and tell the watches."""
        known = self.objects.get(path)
        self._revision += 1
        metadata = {"uid": f"uid-{next(self._numbers)}", **body["metadata"], "resourceVersion": str(self._revision)}
        self.objects[path] = stored = {**body, "metadata": metadata}
        self._tell(path, "ADDED" if known is None else "MODIFIED", stored)
        return stored

    def delete(self, path: str) -> None:
        """Drop an object and tell the watches."""
        gone = self.objects.pop(path)
        self._revision += 1
        self._tell(path, "DELETED", merged(gone, {"metadata": {"resourceVersion": str(self._revision)}}))

    def pod(self, name: str, node: str = "", **spec: Any) -> str:
        """Create a pod; returns its path."""
        path = f"/api/v1/namespaces/default/pods/{name}"
        container = {"name": "main", "image": "busybox"}
        self.put(
            path,
            {
                "metadata": {"name": name, "namespace": "default", "annotations": spec.pop("annotations", {})},
                "spec": {"nodeName": node, "containers": [container], **spec},
                "status": {"phase": "Pending"},
            },
        )
        return path

    def leave(self, path: str, grace_s: int = 30) -> None:
        """Mark a pod for deletion, as the API server does with a graceful DELETE."""
        marks = {"deletionTimestamp": "2026-12-01T00:00:00Z", "deletionGracePeriodSeconds": grace_s}
        self.put(path, merged(self.objects[path], {"metadata": marks}))

    def node(self, name: str) -> Json | None:
        """The Node of that name."""
        return self.objects.get(f"/api/v1/nodes/{name}")

    def ready(self, name: str) -> str:
        """The status of that Node's condition Ready."""
        found = self.node(name)
        conditions = found["status"]["conditions"] if found else []
        return next((str(each["status"]) for each in conditions if each["type"] == "Ready"), "")

    def count(self, method: str, part: str) -> int:
        """How many such calls there were."""
        return sum(1 for _, how, path in self.calls if how == method and part in path)

    def _list(self, path: str) -> httpx.Response:
        kind = path.rpartition("/")[2]
        items = [each for at, each in sorted(self.objects.items()) if f"/{kind}/" in at]
        return _answer(200, {"metadata": {"resourceVersion": str(self._revision)}, "items": items})

    def _watch(self, path: str, since: int) -> httpx.Response:
        return httpx.Response(200, stream=_Stream(self._events(path.rpartition("/")[2], since)))

    async def _events(self, kind: str, since: int) -> AsyncIterator[bytes]:
        while not self.down:
            news = self._news
            for revision, of, type_, body in self._log:
                if revision > since and of == kind:
                    since = revision
                    await asyncio.sleep(self.watch_lag_ms / 1000)
                    yield json.dumps({"type": type_, "object": body}).encode() + b"\n"
            await news.wait()
        raise httpx.ReadError("connection reset")

    def _tell(self, path: str, type_: str, body: Json) -> None:
        self._log.append((self._revision, path.split("/")[-2], type_, body))
        self.wake()

    def wake(self) -> None:
        """Let the watches look."""
        news, self._news = self._news, asyncio.Event()
        news.set()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks


def _answer(status: int, body: Json) -> httpx.Response:
    return httpx.Response(status, content=json.dumps(body).encode())


def merged(old: Json, new: Json) -> Json:
    """A merge patch, with conditions merged by type as a strategic one does."""
    result = dict(old)
    for key, value in new.items():
        if isinstance(value, dict):
            result[key] = merged(result.get(key, {}), value)
        elif key == "conditions":
            by_type = {each["type"]: each for each in result.get(key, [])}
            for each in value:
                by_type[each["type"]] = by_type.get(each["type"], {}) | each
            result[key] = list(by_type.values())
        else:
            result[key] = value
    return result


class FakeCloud:
    """A cloud that lists what it is told to."""

    region = "us-east-1"

    def __init__(self) -> None:
        self.revision = 1
        self.away = False
        self.instances: dict[str, CloudInstance] = {}
        self._news = asyncio.Event()

    def start(self, number: int, *, group: str = "web", kind: str = "m5.large", boot_after_ms: int = 0) -> str:
        """A machine starts; returns the name of its Node to be."""
        clock = LoopClock()
        instance = CloudInstance(
            id=f"i-{number}", group=group, zone="us-east-1a", instance_type=kind, image_id="ami-1",
            private_dns_name=f"ip-172-31-0-{number}.ec2.internal", private_ip=f"172.31.0.{number}", state="InService",
            launch_ms=clock.now_ms(), boot_after_ms=boot_after_ms, ready=True, spot=False, tags={},
        )  # fmt: skip
        self.instances[instance.id] = instance
        self._changed()
        return instance.private_dns_name

    def end(self, number: int) -> None:
        """A machine is off."""
        del self.instances[f"i-{number}"]
        self._changed()

    def _changed(self) -> None:
        self.revision += 1
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def instance_list(self, *, after: int = 0, wait_ms: int = 0) -> InstanceList:
        """The machines, once the revision is above `after` or `wait_ms` are over."""
        if self.revision <= after:
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._news.wait()
            except TimeoutError:
                pass
        if self.away:
            raise CloudUnavailable("away")
        return InstanceList(
            revision=self.revision, now_ms=LoopClock().now_ms(), instances=tuple(self.instances.values())
        )
