"""The simulated cloud for those who use it: start it as a child process, set it up, trouble it, watch it.

    async with Cloud.start(region="ap-northeast-1") as cloud:
        await cloud.create_launch_configuration("web", instance_type="m5.large")
        await cloud.create_group("web", 0, 6, configuration="web")
        key = await cloud.create_iam_user(policy_json)
        env = cloud.environment(key)       # for the process under test: AWS_ENDPOINT_URL, region, credentials

It refuses to know: how the cloud behaves (`sim.asg`), and AWS's wire; whoever tests the wire brings boto3.
Invariant: the child ends with the context, with a kill -9 of this process, and with `kill()`; every await has a timeout.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
import msgspec

from nobiru.kernel.errors import CloudRejected, CloudUnavailable
from nobiru.sim.asg_state import Faults, Group, Timing
from nobiru.sim.cloud_api import (
    CallLog,
    CloudInstance,
    Credentials,
    InstanceId,
    InstanceList,
    NewConfiguration,
    NewTemplate,
    NewUser,
    Problem,
    Ready,
)

T = TypeVar("T")

START_S = 60.0  # moto loads in 3 s on an idle machine with two cores, and far longer on a busy one
ANSWER_S = 20.0  # an answer beyond what was asked to wait for
WAIT_MS = 20_000
IMAGE_ID = "ami-0123456789abcdef0"


class Cloud:
    """A running cloud; made by `Cloud.start`."""

    def __init__(
        self, process: asyncio.subprocess.Process, ready: Ready, region: str, http: aiohttp.ClientSession
    ) -> None:
        self._process = process
        self._http = http
        self.region = region
        self.endpoint_url = f"http://127.0.0.1:{ready.port}"
        self.admin = Credentials(access_key_id=ready.access_key_id, secret_access_key=ready.secret_access_key)

    @classmethod
    @asynccontextmanager
    async def start(
        cls, region: str = "ap-northeast-1", *, timing: Timing | None = None, seed: str = ""
    ) -> AsyncIterator["Cloud"]:
        """A cloud for as long as the context lasts; equal seeds give equal instance ids."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "nobiru.sim.cloud_server", "--region", region, "--seed", seed,
            "--timing", msgspec.json.encode(timing or Timing()).decode(),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=_child_environment(os.environ),
        )  # fmt: skip
        try:
            ready = await _ready(process)
            async with aiohttp.ClientSession() as http:
                yield cls(process, ready, region, http)
        finally:
            if process.returncode is None:
                process.kill()
            await asyncio.wait_for(process.wait(), ANSWER_S)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def kill(self) -> None:
        """End the cloud as a power cut would."""
        self._process.kill()

    def environment(self, key: Credentials | None = None) -> dict[str, str]:
        """The environment variables that lead AWS's SDKs here, as the user of that key (admin by default)."""
        key = key or self.admin
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": key.access_key_id,
            "AWS_SECRET_ACCESS_KEY": key.secret_access_key,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    async def create_iam_user(self, policy_json: str, name: str = "autoscaler") -> Credentials:
        """A user with that policy alone."""
        return await self._send("POST", "users", NewUser(name=name, policy=policy_json), Credentials)

    async def create_launch_configuration(
        self, name: str, *, instance_type: str = "m5.large", image_id: str = IMAGE_ID, user_data: str = ""
    ) -> None:
        """A launch configuration; `user_data` is Base64, as in AWS's API."""
        new = NewConfiguration(name=name, instance_type=instance_type, image_id=image_id, user_data=user_data)
        await self._send("POST", "launch-configurations", new, None)

    async def create_launch_template(
        self, name: str, *, instance_type: str = "m5.large", image_id: str = IMAGE_ID, make_default: bool = False
    ) -> str:
        """A launch template, or another version of the one of that name; returns its id."""
        new = NewTemplate(name=name, instance_type=instance_type, image_id=image_id, make_default=make_default)
        return (await self._send("POST", "launch-templates", new, dict[str, str]))["id"]

    async def create_group(
        self,
        name: str,
        min_size: int,
        max_size: int,
        desired: int | None = None,
        *,
        configuration: str = "",
        template: str = "",
        version: str = "$Latest",
        overrides: Sequence[str] = (),
        zones: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        propagate: bool = True,
    ) -> None:
        """A group from a launch configuration or template; `overrides` (types) make it a mixed-instances group.

        Without `zones`: the region's zones a and c.  Without `desired`: the minimum.
        """
        params: dict[str, object] = {
            "AutoScalingGroupName": name,
            "MinSize": min_size,
            "MaxSize": max_size,
            "DesiredCapacity": min_size if desired is None else desired,
            "AvailabilityZones": list(zones) or [f"{self.region}a", f"{self.region}c"],
            "Tags": [
                {"ResourceId": name, "Key": key, "Value": value, "PropagateAtLaunch": propagate}
                for key, value in (tags or {}).items()
            ],
        }
        spec = {"LaunchTemplateName": template, "Version": version}
        if overrides:
            types = [{"InstanceType": type_} for type_ in overrides]
            params["MixedInstancesPolicy"] = {
                "LaunchTemplate": {"LaunchTemplateSpecification": spec, "Overrides": types}
            }
        elif template:
            params["LaunchTemplate"] = spec
        else:
            params["LaunchConfigurationName"] = configuration
        await self.perform("CreateAutoScalingGroup", params)

    async def perform(self, action: str, params: Mapping[str, object]) -> dict[str, object]:
        """One action of the Auto Scaling API as admin, in AWS's members; CloudRejected where AWS would refuse."""
        return await self._send("POST", f"aws/{action}", params, dict[str, object])

    async def groups(self) -> dict[str, Group]:
        """All groups as they are, whatever Describe shows."""
        return await self._send("GET", "groups", None, dict[str, Group])

    async def group(self, name: str) -> Group:
        """One group as it is; KeyError where there is none."""
        return (await self.groups())[name]

    async def instances(self) -> tuple[CloudInstance, ...]:
        """All machines that exist now."""
        return (await self.instance_list()).instances

    async def instance_list(self, *, after: int = 0, wait_ms: int = 0) -> InstanceList:
        """All machines, once the revision is above `after` or `wait_ms` are over."""
        path = f"instances?after={after}&wait_ms={wait_ms}"
        return await self._send("GET", path, None, InstanceList, wait_s=wait_ms / 1000)

    async def wait_for(
        self, done: Callable[[tuple[CloudInstance, ...]], bool], *, wait_ms: int = WAIT_MS
    ) -> tuple[CloudInstance, ...]:
        """The machines once `done` says so; TimeoutError after `wait_ms`."""
        after = 0
        async with asyncio.timeout(wait_ms / 1000):
            while True:
                found = await self.instance_list(after=after, wait_ms=wait_ms)
                if done(found.instances):
                    return found.instances
                after = found.revision

    async def set_faults(self, faults: Faults | None = None) -> None:
        """Other troubles in place of the old; none: all is well again."""
        await self._send("PUT", "faults", faults or Faults(), None)

    async def set_timing(self, timing: Timing) -> None:
        """Other delays from now on."""
        await self._send("PUT", "timing", timing, None)

    async def kill_instance(self, instance_id: str) -> None:
        """Stop a machine behind its group's back, as a spot interruption does."""
        await self._send("POST", "kill", InstanceId(instance_id=instance_id), None)

    async def calls(self) -> CallLog:
        """What was called, by whom, and what it changed."""
        return await self._send("GET", "calls", None, CallLog)

    async def _send(self, method: str, path: str, body: object, type_: type[T] | None, *, wait_s: float = 0.0) -> T:
        data = msgspec.json.encode(body) if body is not None else None
        url = f"{self.endpoint_url}/nobiru-sim/{path}"
        timeout = aiohttp.ClientTimeout(total=wait_s + ANSWER_S)
        try:
            async with self._http.request(method, url, data=data, timeout=timeout) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CloudUnavailable(f"the simulated cloud does not answer {method} {path}: {error}") from error
        try:
            if response.status == 200:
                return msgspec.json.decode(content, type=type_)
            problem = msgspec.json.decode(content, type=Problem)
        except msgspec.DecodeError as error:
            raise CloudUnavailable(f"the simulated cloud failed at {method} {path}; see standard error") from error
        raise CloudRejected(f"{problem.code}: {problem.message}")


async def _ready(process: asyncio.subprocess.Process) -> Ready:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_S)
        return msgspec.json.decode(line, type=Ready)
    except (TimeoutError, msgspec.DecodeError) as error:
        raise CloudUnavailable("the simulated cloud did not start; its own words are on standard error") from error


def _child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Without what would lead moto's own SDK elsewhere."""
    return {key: value for key, value in environ.items() if not key.startswith(("AWS_", "MOTO_"))}
