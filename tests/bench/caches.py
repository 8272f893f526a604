"""The caches of a large cluster: listed, decoded, kept, then changed as fast as a server in another process can send.

First the caches of pods and nodes alone, then all those of the node autoscaler, with its books and news listening to every
change.  Measured in processes of their own, so that their memory is their own: `python -m tests.bench.caches PORT whole`.
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.objects import Node, Pod
from nobiru.kube.cache import Cache, Follow, follow
from nobiru.kube.client import NODES, PODS
from nobiru.kube.connect import connect
from nobiru.nodes.news import News
from nobiru.nodes.observe import Caches
from nobiru.placement.books import Books
from tests.bench.rows import Row

POD_COUNT, NODE_COUNT, EVENT_COUNT = 150_000, 5_000, 100_000


class Measured(Struct, frozen=True, kw_only=True):
    """What one process saw; the `cpu` figures are of its own processor time, which a busy machine distorts least."""

    plain_s: float
    list_s: float
    list_cpu_s: float
    rss_mib: float
    events_per_s: float
    events_per_cpu_s: float


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def rows() -> list[Row]:
    """List time, memory and watch rate against their targets."""
    size = [str(count) for count in (POD_COUNT, NODE_COUNT, EVENT_COUNT)]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.cache_server", *size], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            plain = _in_own_process(port, "plain")
            output = _in_own_process(port, "whole")
        finally:
            server.kill()
    found = replace(msgspec.json.decode(output, type=Measured), plain_s=float(plain))
    sys.stderr.write(
        f"caches: {found.list_cpu_s:.2f} cpu-s to list with the account, {found.events_per_cpu_s:,.0f} events per cpu-s\n"
    )
    name = f"caches of {NODE_COUNT:,} nodes and {POD_COUNT:,} pods"
    return [
        Row(name=f"{name}: listed and decoded", value=round(found.plain_s, 2), unit="s", target=6.0),
        Row(name=f"{name}: and accounted for", value=round(found.list_s, 2), unit="s", target=6.0),
        Row(name=f"{name}: memory of the process", value=round(found.rss_mib), unit="MiB", target=400.0),
        Row(
            name=f"{name}: watch",
            value=round(found.events_per_s),
            unit="events/s",
            target=30_000.0,
            at_least=True,
        ),
    ]


def _in_own_process(port: str, what: str) -> bytes:
    command = [sys.executable, "-m", "tests.bench.caches", port, what]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300).stdout


def rss_mib() -> float:
    """The resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the kernel does not tell this process's memory")


async def plain_list_s(port: int) -> float:
    """How long the caches take to be listed, decoded and kept, with nobody listening."""
    books = Books()
    pods: Cache[Pod] = Cache(PODS, Pod, admit=books.admit)
    nodes: Cache[Node] = Cache(NODES, Node)
    client = connect(kubernetes_url=f"http://127.0.0.1:{port}")
    began_s = time.perf_counter()
    following = [
        asyncio.create_task(follow(pods, client, SystemClock(), Follow())),
        asyncio.create_task(follow(nodes, client, SystemClock(), Follow())),
    ]
    await asyncio.gather(pods.synced.wait(), nodes.synced.wait())
    took_s = time.perf_counter() - began_s
    assert (len(pods), len(nodes)) == (POD_COUNT, NODE_COUNT)
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    await client.aclose()
    return took_s


async def measure(port: int) -> Measured:
    """Follow the server's pods and nodes to the end of its events."""
    caches = Caches(Books(), News(SystemClock()))
    pods, nodes = caches.pods, caches.nodes
    client = connect(kubernetes_url=f"http://127.0.0.1:{port}")
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    following = [asyncio.create_task(follow(cache, client, SystemClock(), Follow())) for cache in caches.all]
    await caches.synced()
    list_s, list_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    assert (len(pods), len(nodes)) == (POD_COUNT, NODE_COUNT)
    memory_mib = rss_mib()
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    await client.request("POST", "/go")
    while pods.revision != "done":  # noqa: ASYNC110 (a bookmark has no event of its own)
        await asyncio.sleep(0.005)
    events_s, events_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    await client.aclose()
    return Measured(
        plain_s=0.0,
        list_s=list_s,
        list_cpu_s=list_cpu_s,
        rss_mib=memory_mib,
        events_per_s=EVENT_COUNT / events_s,
        events_per_cpu_s=EVENT_COUNT / events_cpu_s,
    )


if __name__ == "__main__":
    if sys.argv[2] == "plain":
        sys.stdout.write(str(asyncio.run(plain_list_s(int(sys.argv[1])))))
    else:
        sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(measure(int(sys.argv[1])))))
