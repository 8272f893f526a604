"""Changes by patch or, where only update is granted, by replacement."""

import json
from typing import Any

import pytest
from aiohttp import web

from nobiru.kernel.errors import KubeConflict, KubeDenied
from nobiru.kube.change import Changer, merged
from nobiru.kube.client import CONFIGMAPS
from tests.unit.kube.server import serving, status


@pytest.mark.parametrize(
    ("name", "target", "patch", "want"),
    [
        ("a field joins", {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ("null removes", {"a": 1, "b": 2}, {"b": None}, {"a": 1}),
        ("removing what is not there", {"a": 1}, {"b": None}, {"a": 1}),
        (
            "objects merge",
            {"m": {"x": 1, "y": {"z": 2}}},
            {"m": {"y": {"w": 3}}},
            {"m": {"x": 1, "y": {"z": 2, "w": 3}}},
        ),
        ("lists are replaced", {"t": [1, 2]}, {"t": [3]}, {"t": [3]}),
        ("nulls inside new objects vanish", {}, {"m": {"x": None, "y": 1}}, {"m": {"y": 1}}),
    ],
)
def test_merge(name: str, target: dict[str, Any], patch: dict[str, Any], want: dict[str, Any]) -> None:
    """A merge patch means what RFC 7386 says, and the target is not touched."""
    before = json.dumps(target)
    assert merged(target, patch) == want
    assert json.dumps(target) == before


class Server:
    """One object behind the rights of an account."""

    def __init__(self, *verbs: str, refusal: int = 403) -> None:
        self.verbs, self.refusal, self.asked = verbs, refusal, list[str]()
        self.object: dict[str, Any] = {
            "metadata": {"name": "n", "resourceVersion": "7"},
            "spec": {"unknown": {"deep": [1, 2]}, "taints": []},
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        verb = {"GET": "get", "PATCH": "patch", "PUT": "update"}[request.method]
        self.asked.append(verb)
        if verb not in self.verbs:
            return status(self.refusal, f"cannot {verb}")
        if verb != "get":
            body = await request.json()
            if body["metadata"].get("resourceVersion", "7") != self.object["metadata"]["resourceVersion"]:
                return status(409)
            self.object = merged(self.object, body) if verb == "patch" else body
        return web.json_response(self.object)


CHANGE = {"metadata": {"resourceVersion": "7"}, "spec": {"taints": [{"key": "t"}]}}


@pytest.mark.parametrize(
    ("name", "verbs", "asked"),
    [
        ("a patch where it is allowed", ("get", "patch", "update"), ["patch", "patch"]),
        ("update alone is found once, then used", ("get", "update"), ["patch", "get", "update", "get", "update"]),
    ],
)
async def test_whichever_right_is_there(name: str, verbs: tuple[str, ...], asked: list[str]) -> None:
    """With patch or with update alone the object ends up the same, and no unknown field is lost."""
    server = Server(*verbs)
    async with serving(server.answer) as client:
        changer = Changer(client)
        for _ in range(2):
            await changer.merge(CONFIGMAPS, "ns", "n", CHANGE, dict)
    assert server.asked == asked
    assert server.object["spec"] == {"unknown": {"deep": [1, 2]}, "taints": [{"key": "t"}]}


async def test_neither_right() -> None:
    """Where both are refused, the patch is the right that is said to be missing."""
    server = Server("get")
    async with serving(server.answer) as client:
        with pytest.raises(KubeDenied, match="cannot patch"):
            await Changer(client).merge(CONFIGMAPS, "ns", "n", CHANGE, dict)


async def test_a_stranger_is_no_lack_of_one_right() -> None:
    """401 says nothing about rights: nothing else is tried."""
    server = Server("get", refusal=401)
    async with serving(server.answer) as client:
        with pytest.raises(KubeDenied):
            await Changer(client).merge(CONFIGMAPS, "ns", "n", CHANGE, dict)
    assert server.asked == ["patch"]


async def test_an_old_revision_is_a_conflict_either_way() -> None:
    """A change for a revision that is over is refused, by patch and by update."""
    for verbs in (("get", "patch"), ("get", "update")):
        server = Server(*verbs)
        async with serving(server.answer) as client:
            with pytest.raises(KubeConflict):
                await Changer(client).merge(CONFIGMAPS, "ns", "n", {"metadata": {"resourceVersion": "6"}}, dict)
