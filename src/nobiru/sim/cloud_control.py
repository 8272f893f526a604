"""The control channel of the simulated cloud: what tests and hollow kubelets ask it beside AWS's API.

    GET  /nobiru-sim/instances?after=REVISION&wait_ms=MS   InstanceList; waits for a revision above `after`
    GET  /nobiru-sim/groups                                groups as they are (no lag), by name
    GET  /nobiru-sim/calls                                 CallLog
    PUT  /nobiru-sim/faults    PUT /nobiru-sim/timing      Faults, Timing in place of the old
    POST /nobiru-sim/users  /launch-templates  /launch-configurations  /kill
    POST /nobiru-sim/aws/ACTION                            an Auto Scaling action as "admin", AWS's members as JSON

It refuses to know: AWS's wire, policies and signatures.  It listens on loopback only, like the rest of the server.
Invariant: every answer is JSON; what is turned down is a Problem with status 400 or 404.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from werkzeug.wrappers import Request, Response

from nobiru.sim import asg
from nobiru.sim.asg_state import Faults, Refused, Timing
from nobiru.sim.cloud_api import (
    CallLog,
    Credentials,
    InstanceId,
    InstanceList,
    NewConfiguration,
    NewTemplate,
    NewUser,
    Problem,
    shown,
)
from nobiru.sim.cloud_moto import Shim, create_configuration, create_template, create_user
from nobiru.sim.cloud_region import Region
from nobiru.sim.cloud_wire import ACTIONS

if TYPE_CHECKING:  # the standard library has these types for checkers only
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

PREFIX = "/nobiru-sim/"
WAIT_MS_MAX = 60_000  # so that a waiting thread of a client that is gone ends
ADMIN = "admin"


class Control:
    """A WSGI application."""

    def __init__(self, shim: Shim, main_region: str) -> None:
        self._shim = shim
        self._main_region = main_region
        self._routes: dict[tuple[str, str], Callable[[Region, Request], object]] = {
            ("GET", "instances"): self._instances,
            ("GET", "groups"): lambda region, _: region.read().groups,
            ("GET", "calls"): self._calls,
            ("PUT", "faults"): self._set_faults,
            ("PUT", "timing"): self._set_timing,
            ("POST", "users"): self._create_user,
            ("POST", "launch-templates"): self._create_template,
            ("POST", "launch-configurations"): self._create_configuration,
            ("POST", "kill"): self._kill,
        }

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer one request."""
        request = Request(environ)
        status, answer = self._answer(request)
        body = msgspec.json.encode(answer, enc_hook=_plain)
        response = Response(body, status=status, content_type="application/json")
        return response(environ, start_response)

    def _answer(self, request: Request) -> tuple[int, object]:
        region = self._shim.region(request.args.get("region", self._main_region))
        path = request.path.removeprefix(PREFIX)
        try:
            if request.method == "POST" and path.startswith("aws/"):
                return self._aws(region, path.removeprefix("aws/"), request)
            route = self._routes.get((request.method, path))
            if route is None:
                return 404, Problem(code="NotFound", message=f"there is no {request.method} {request.path}")
            return 200, route(region, request)
        except (msgspec.DecodeError, ValueError) as error:
            return 400, Problem(code="BadRequest", message=str(error))

    def _aws(self, region: Region, action: str, request: Request) -> tuple[int, object]:
        if action not in ACTIONS:
            return 404, Problem(code="InvalidAction", message=f"The action {action} is not simulated.")
        params: dict[str, object] = msgspec.json.decode(request.data or b"{}")
        answer = self._shim.perform(region, action, params, ADMIN)
        if isinstance(answer, Refused):
            return 400, Problem(code=answer.code, message=answer.message)
        return 200, answer

    def _instances(self, region: Region, request: Request) -> InstanceList:
        after = int(request.args.get("after", 0))
        wait_ms = min(int(request.args.get("wait_ms", 0)), WAIT_MS_MAX)
        state = region.wait(after, wait_ms)
        found = (instance for group in state.groups.values() for instance in group.instances.values())
        return InstanceList(
            revision=state.revision, now_ms=state.now_ms, instances=tuple(shown(instance) for instance in found)
        )

    def _calls(self, region: Region, _: Request) -> CallLog:
        state = region.read()
        return CallLog(calls=state.calls, refused=state.refused, counts=self._shim.counts())

    def _set_faults(self, region: Region, request: Request) -> None:
        faults = msgspec.json.decode(request.data, type=Faults)
        region.change(lambda state, now_ms: (asg.set_faults(state, faults, now_ms=now_ms), None))

    def _set_timing(self, region: Region, request: Request) -> None:
        timing = msgspec.json.decode(request.data, type=Timing)
        region.change(lambda state, now_ms: (asg.set_timing(state, timing, now_ms=now_ms), None))

    def _create_user(self, region: Region, request: Request) -> Credentials:
        user = msgspec.json.decode(request.data, type=NewUser)
        return create_user(region.name, user.name, user.policy)

    def _create_template(self, region: Region, request: Request) -> dict[str, str]:
        return {"id": create_template(region.name, msgspec.json.decode(request.data, type=NewTemplate))}

    def _create_configuration(self, region: Region, request: Request) -> None:
        create_configuration(region.name, msgspec.json.decode(request.data, type=NewConfiguration))

    def _kill(self, region: Region, request: Request) -> None:
        region.died(msgspec.json.decode(request.data, type=InstanceId).instance_id)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    raise NotImplementedError(f"{type(value).__name__} is not JSON")
