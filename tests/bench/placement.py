"""Placement by itself: feeding and freezing the books, masks, packing, removals, and what 150,000 pods cost in memory.

Processor time, since nothing here waits for anything: what else runs on the machine counts little.  Memory and feeding
are measured in a process of their own, so that what other figures leave behind does not count.
"""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from nobiru.kernel.objects import Node, Pod
from nobiru.placement.books import Books
from nobiru.placement.filters import fits
from nobiru.placement.pack import Candidate, order, pack_new, place, plan_removals
from tests.bench.rows import Row

NODES, PODS, OWNERS, PAGE = 5_000, 150_000, 500, 500
TRIES = 5
Json = dict[str, Any]


def best_ms(work: Callable[[], object]) -> float:
    """The least processor time of a few runs, in milliseconds."""
    times = []
    for _ in range(TRIES):
        began = time.process_time()
        work()
        times.append((time.process_time() - began) * 1000)
    return round(min(times), 2)


# 5,000 nodes and 150,000 pods, as the API server sends them


def pod_json(number: int) -> Json:
    """A pod of about 4 KB, one of 300 replicas, bound to a node."""
    owner = number % OWNERS
    suffix = f"{number:05x}"[-5:]
    token = f"kube-api-access-{suffix}"
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    born = "2026-01-01T00:00:00Z"
    return {
        "metadata": {
            "name": f"web-{owner:03}-7d9f8b6c5d-{suffix}-{number}",
            "namespace": f"team-{owner % 20}",
            "uid": f"{number:08x}-1111-2222-3333-444444444444",
            "resourceVersion": str(1_000_000 + number),
            "creationTimestamp": born,
            "labels": {"app": f"web-{owner}", "pod-template-hash": "7d9f8b6c5d"},
            "annotations": {"checksum/config": "c" * 64},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"web-{owner:03}-7d9f8b6c5d",
                    "uid": f"{owner:08x}-aaaa-2222-3333-444444444444",
                    "controller": True,
                }
            ],
            "managedFields": [{"manager": "m", "fieldsV1": {f"f:field-{field}": {} for field in range(60)}}],
        },
        "spec": {
            "nodeName": f"ip-10-0-{number % NODES}.ec2.internal",
            "schedulerName": "default-scheduler",
            "priority": 0,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
            "containers": [
                {
                    "name": "app",
                    "image": "registry.example.com/team/app:1.2.3",
                    "env": [{"name": f"SETTING_{field}", "value": "v" * 50} for field in range(12)],
                    "resources": {
                        "requests": {"cpu": f"{100 + owner % 7 * 50}m", "memory": "200Mi"},
                        "limits": {"memory": "1Gi"},
                    },
                    "volumeMounts": [{"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
                }
            ],
            "volumes": [{"name": token, "projected": {"sources": []}}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": each, "status": "True", "lastTransitionTime": born} for each in conditions],
            "containerStatuses": [{"name": "app", "imageID": "y" * 90, "ready": True}],
        },
    }


def node_of(number: int) -> Node:
    name = f"ip-10-0-{number}.ec2.internal"
    value = {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "abc"[number % 3]},
        },
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
    }
    return msgspec.convert(value, Node)


def resident_mib() -> float:
    """This process's resident memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 2**20


def loaded_books() -> tuple[Books, dict[str, float]]:
    """Books of the whole cluster, fed page by page as a cache would; and what that took."""
    decoder = msgspec.json.Decoder(list[Pod])
    books, cache = Books(), {}
    for number in range(NODES):
        books.upsert_node(node_of(number))
    decode_s = feed_s = 0.0
    gc.disable()  # as the caches do during a list
    for start in range(0, PODS, PAGE):
        raw = json.dumps([pod_json(number) for number in range(start, start + PAGE)]).encode()
        began = time.process_time()
        decoded = decoder.decode(raw)
        middle = time.process_time()
        for pod in decoded:
            kept = books.admit(pod)
            cache[kept.key] = kept
            books.upsert_pod(kept)
        decode_s, feed_s = decode_s + middle - began, feed_s + time.process_time() - middle
    gc.enable()
    gc.collect()
    gc.freeze()
    began = time.process_time()
    books.freeze()
    first_ms = (time.process_time() - began) * 1000
    figures = {"feed_us": feed_s / PODS * 1e6, "decode_us": decode_s / PODS * 1e6, "first_freeze_ms": first_ms}
    return books, {**figures, "resident_mib": resident_mib(), **_freezes(books, next(iter(cache.values())))}


def _freezes(books: Books, pod: Pod) -> dict[str, float]:
    turn = iter(range(1_000))

    def one_pod() -> None:
        books.upsert_pod(replace(pod, status=replace(pod.status, phase=f"Running{next(turn)}")))
        books.freeze()

    def many_pods() -> None:
        for number in range(1_000):
            moved = msgspec.convert(pod_json(number), Pod)
            books.upsert_pod(replace(moved, status=replace(moved.status, phase=f"Running{next(turn)}")))
        began = time.process_time()
        books.freeze()
        thousand.append((time.process_time() - began) * 1000)

    thousand: list[float] = []
    quiet_ms = best_ms(one_pod)
    turn = iter(range(100_000))
    many_pods()
    return {"quiet_freeze_ms": quiet_ms, "busy_freeze_ms": thousand[0]}


def in_a_process_of_its_own() -> dict[str, float]:
    """The figures of `loaded_books`, measured by a fresh interpreter."""
    done = subprocess.run([sys.executable, "-m", "tests.bench.placement"], check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


# Packing


def diverse_requests(classes: int) -> np.ndarray:
    """Requests (K, 4) of many sizes, biggest first."""
    chance = np.random.default_rng(7)
    request = np.zeros((classes, 4), dtype=np.int64)
    request[:, 0] = chance.integers(1, 40, classes) * 50
    request[:, 1] = chance.integers(1, 40, classes) * 2**26
    request[:, 3] = 1
    return request[order(request, np.array([16_000, 2**36, 1, 110]), ("cpu", "memory", "ephemeral-storage", "pods"))]


def place_ms() -> float:
    """200 classes onto 5,000 nodes of which each suits four in five."""
    chance = np.random.default_rng(8)
    request, suits = diverse_requests(200), chance.random((200, NODES)) < 0.8
    free = np.stack([chance.integers(0, top, NODES) for top in (16_000, 2**36, 1, 110)])
    count = chance.integers(1, 400, 200)
    return best_ms(lambda: place(request, count, suits, free))


def pack_ms(classes: int, pods: int) -> float:
    """So many pods onto copies of one template."""
    request, suits = diverse_requests(classes), np.ones(classes, dtype=np.bool_)
    count = np.full(classes, pods // classes, dtype=np.int64)
    return best_ms(lambda: pack_new(request, count, suits, np.array([16_000, 2**36, 0, 110]), 100_000))


def removals_ms(nodes: int, classes_each: int, classes: int) -> float:
    """Nodes used at 40 % by so many classes each, all of them candidates."""
    chance = np.random.default_rng(9)
    request, suits = diverse_requests(classes), np.ones((classes, nodes), dtype=np.bool_)
    rows = [chance.choice(classes, classes_each, replace=False) for _ in range(nodes)]
    pods_each = 40 // classes_each
    used = np.stack([request[each].sum(axis=0) * pods_each for each in rows], axis=1)
    free = (used * 1.5).astype(np.int64)
    candidates = [
        Candidate(node=node, rows=tuple(each.tolist()), counts=(pods_each,) * classes_each)
        for node, each in enumerate(rows)
    ]
    return best_ms(lambda: plan_removals(request, suits, free, candidates))


def fits_ms() -> float:
    """200 classes with selectors and tolerations over 5,000 nodes with labels and taints, nothing remembered."""
    books = Books()
    for number in range(NODES):
        plain = node_of(number)
        labels = {**plain.labels, "pool": f"p{number % 40}"}
        books.upsert_node(replace(plain, metadata=replace(plain.metadata, labels=labels)))
    classes = []
    for number in range(200):
        value = pod_json(number)
        value["spec"]["nodeSelector"] = {"pool": f"p{number % 40}"} if number % 3 else {}
        classes.append(books.classes.intern(msgspec.convert(value, Pod)))
    nodes = books.freeze().nodes
    return best_ms(lambda: fits(classes, replace(nodes, memo=type(nodes.memo)())))


def rows() -> list[Row]:
    """The figures of placement."""
    figures = in_a_process_of_its_own()

    def ms(name: str, value: float, target: float) -> Row:
        return Row(name=f"placement: {name}", value=round(value, 2), unit="ms", target=target)

    return [
        Row(
            name="placement: 5,000 nodes, 150,000 pods resident",
            value=round(figures["resident_mib"]),
            unit="MiB",
            target=400,
        ),
        Row(name="placement: admit and count a pod", value=round(figures["feed_us"], 1), unit="us", target=25),
        ms("first freeze of 150,000 pods", figures["first_freeze_ms"], 300),
        ms("freeze after one pod changed", figures["quiet_freeze_ms"], 20),
        ms("freeze after 1,000 pods changed", figures["busy_freeze_ms"], 100),
        ms("masks, 200 classes x 5,000 nodes", fits_ms(), 40),
        ms("first fit, 200 classes x 5,000 nodes", place_ms(), 40),
        ms("100,000 pods of one class onto new nodes", pack_ms(1, 100_000), 2),
        ms("100,000 pods of 400 classes onto new nodes", pack_ms(400, 100_000), 100),
        ms("removals, 2,000 nodes, 80,000 pods of one class", removals_ms(2_000, 1, 1), 250),
        ms("removals, 2,000 nodes, 80,000 pods of 500 classes", removals_ms(2_000, 20, 500), 1_000),
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(loaded_books()[1]))
