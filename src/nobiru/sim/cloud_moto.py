"""The shim between moto and the state machine: moto keeps the wire, EC2, STS and IAM; groups are ours.

Its one job: put `sim.cloud_wire` in the place of moto's Auto Scaling actions, let faults strike after moto's own policy
check, word refusals as AWS does, and close the gaps of moto 5.2 that groups need (SourceVersion of template versions).
It refuses to know: how groups behave.  It changes moto's internals, so moto is pinned to 5.2.
Invariant: no action of Auto Scaling reaches moto's own groups; one that is not simulated is refused, never an HTTP 500.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgspec
from moto import settings
from moto.autoscaling.exceptions import AutoscalingClientError
from moto.autoscaling.models import AutoScalingBackend, autoscaling_backends
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.authorization import ActionAuthenticatorMixin
from moto.core.exceptions import _RESTError
from moto.core.responses import ActionResult, BaseResponse
from moto.core.utils import camelcase_to_underscores, get_service_model
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.responses import EC2Response
from moto.ec2.utils import parse_user_data
from moto.iam.access_control import IAMRequest
from moto.iam.models import IAMBackend, iam_backends

from nobiru.sim import asg
from nobiru.sim import asg_words as words
from nobiru.sim.asg_state import Catalogue, Machine, Refused, Template, Timing
from nobiru.sim.cloud_api import Credentials, NewConfiguration, NewTemplate
from nobiru.sim.cloud_describe import Answer, Params, arn
from nobiru.sim.cloud_mirror import Mirror
from nobiru.sim.cloud_region import ACCOUNT_ID, Region
from nobiru.sim.cloud_wire import ACTIONS, groups_named

# Launch configurations stay moto's: they are only stored and given back.
KEPT = frozenset({"CreateLaunchConfiguration", "DescribeLaunchConfigurations", "DeleteLaunchConfiguration"})
# Actions whose right can be limited to a group.  Source: AWS "Actions, resources, and condition keys for Amazon EC2 Auto Scaling".
ON_A_GROUP = frozenset(action for action in ACTIONS if not action.startswith("Describe"))


class Shim:
    """The regions behind one moto server, and what it saw."""

    def __init__(self, *, seed: str, timing: Timing) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._seed = seed
        self._timing = timing
        self._regions: dict[str, Region] = {}
        self._mirrors: dict[str, Mirror] = {}

    def region(self, name: str) -> Region:
        """The region of that name."""
        with self._lock:
            if name not in self._regions:
                self._regions[name] = Region(
                    name, seed=self._seed, timing=self._timing, catalogue=lambda: catalogue(name),
                    subnet_zones=lambda ids: subnet_zones(name, ids),
                )  # fmt: skip
                self._mirrors[name] = Mirror(self._regions[name], ec2(name))
            return self._regions[name]

    def counts(self) -> dict[str, int]:
        """How often each action was called, whatever came of it."""
        with self._lock:
            return dict(self._counts)

    def perform(self, region: Region, action: str, params: Params, who: str) -> Answer:
        """Carry out one Auto Scaling action."""
        try:
            return ACTIONS[action](region, params, who)
        except msgspec.ValidationError as error:
            return words.invalid(str(error))

    def install(self) -> None:
        """Put ourselves into moto; once per process."""
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0  # policies count from the first call
        for operation in get_service_model("autoscaling").operation_names:
            if operation not in KEPT:
                replace(AutoScalingResponse, camelcase_to_underscores(operation), self._method(operation))
        replace(AutoScalingResponse, "_determine_resource", lambda response: self._resource(response))
        replace(AutoScalingBackend, "notify_terminate_instances", lambda backend, ids: self._ended_in_ec2(backend, ids))
        word_denials()
        keep_source_version()
        self._let_faults_strike()

    def _method(self, action: str) -> Callable[[AutoScalingResponse], ActionResult]:
        def answer(response: AutoScalingResponse) -> ActionResult:
            if action not in ACTIONS:
                raise AutoscalingClientError("InvalidAction", f"The action {action} is not simulated.")
            result = self.perform(self.region(response.region), action, dict(response.params), caller(response))
            if isinstance(result, Refused):
                raise AutoscalingClientError(result.code, result.message)
            return ActionResult(result)

        return answer

    def _resource(self, response: AutoScalingResponse) -> str:
        region = self.region(response.region)
        if response._get_action() not in ON_A_GROUP:
            return "*"
        state = region.read()
        groups = [state.groups[name] for name in groups_named(state, response.params) if name in state.groups]
        return arn(region.name, groups[0]) if groups else "*"

    def _ended_in_ec2(self, backend: AutoScalingBackend, instance_ids: Sequence[str]) -> None:
        region = self.region(backend.region_name)
        for id_ in instance_ids:
            region.died(id_)

    def _let_faults_strike(self) -> None:
        """After the policy check, before the action: refuse, wait, or remember to drop the reply."""
        authorize = ActionAuthenticatorMixin._authenticate_and_authorize_normal_action
        call_action = BaseResponse.call_action
        shim = self

        def checked(response: BaseResponse, resource: str = "*") -> None:
            action = response._get_action()
            with shim._lock:
                shim._counts[f"{response.service_name}:{action}"] += 1
            authorize(response, resource)
            if response.service_name in ("autoscaling", "ec2"):
                shim._strike(response, action)

        def called(response: BaseResponse) -> Any:
            reply = call_action(response)
            if getattr(response, "reply_is_lost", False):
                raise ConnectionAbortedError("a fault drops this reply")  # the server closes the connection
            return reply

        replace(ActionAuthenticatorMixin, "_authenticate_and_authorize_normal_action", checked)
        replace(BaseResponse, "call_action", called)

    def _strike(self, response: BaseResponse, action: str) -> None:
        service = response.service_name or ""
        region = self.region(response.region)
        params = dict(getattr(response, "params", None) or {})
        state = region.read()
        names = list(groups_named(state, params)) if service == "autoscaling" else []
        fault = region.change(lambda state, _: asg.admit(state, action, names))
        if fault is not None:
            time.sleep(fault.delay_ms / 1000)
            problem = words.call_fault(fault.kind, service, action, user_arn(response))
            if problem is not None:
                region.refused(action, names, caller(response), problem)
                raise Struck(problem)
            response.reply_is_lost = fault.kind == "lost_reply"  # type: ignore[attr-defined]
        if service == "ec2" and "Instance" in action and "InstanceType" not in action:
            self._mirrors[region.name].follow(params.get("InstanceIds") or ())


def replace(owner: type, name: str, method: Callable[..., object]) -> None:
    """Put a method of ours into a class of moto's: the one place where that is done."""
    setattr(owner, name, method)


class Struck(_RESTError):
    """A call that a fault refuses."""

    def __init__(self, problem: Refused) -> None:
        super().__init__(problem.code, problem.message)
        self.code = problem.status


def word_denials() -> None:
    """Let moto say AccessDenied and UnauthorizedOperation in AWS's words."""
    check = IAMRequest.check_action_permitted

    def checked(request: IAMRequest, resource: str) -> None:
        request.resource = resource  # type: ignore[attr-defined]
        check(request, resource)

    def denied(request: IAMRequest) -> NoReturn:
        service, action = request._action.split(":", 1)
        resource = getattr(request, "resource", "*")
        raise Struck(words.access_denied(service, action, request._access_key.arn, resource if resource != "*" else ""))

    replace(IAMRequest, "check_action_permitted", checked)
    replace(IAMRequest, "_raise_access_denied", denied)


def keep_source_version() -> None:
    """Let a new version of a launch template begin from its SourceVersion, which moto 5.2 ignores."""
    create = EC2Response.create_launch_template_version

    def created(response: EC2Response) -> ActionResult:
        params = response.params
        data: dict[str, Any] = dict(params.get("LaunchTemplateData") or {})
        if data.get("UserData"):
            data["UserData"] = parse_user_data(data["UserData"])
        source = params.get("SourceVersion")
        if source:
            backend = response.ec2_backend
            id_, name = params.get("LaunchTemplateId"), params.get("LaunchTemplateName")
            template = backend.get_launch_template(id_) if id_ else backend.get_launch_template_by_name(name)
            data = {**template.get_version(source).data, **data}
        params["LaunchTemplateData"] = data
        return create(response)

    replace(EC2Response, "create_launch_template_version", created)


def caller(response: BaseResponse) -> str:
    """The name of the IAM user, or the session name of the role, whose key signed the call."""
    return user_arn(response).rsplit("/", 1)[-1]


def user_arn(response: BaseResponse) -> str:
    """The caller's ARN."""
    for user in iam().users.values():
        if any(key.access_key_id == response.access_key for key in user.access_keys):
            return f"arn:aws:iam::{ACCOUNT_ID}:user/{user.name}"
    from moto.sts.models import sts_backends

    for role in sts_backends[ACCOUNT_ID]["aws"].assumed_roles:
        if role.access_key_id == response.access_key:
            name = role.role_arn.rsplit("/", 1)[-1]
            return f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/{name}/{role.session_name}"
    return f"arn:aws:iam::{ACCOUNT_ID}:user/unknown"


def iam() -> IAMBackend:
    """moto's IAM."""
    return iam_backends[ACCOUNT_ID]["aws"]


def ec2(region: str) -> EC2Backend:
    """moto's EC2 of a region."""
    return ec2_backends[ACCOUNT_ID][region]


def create_user(region: str, name: str, policy: str) -> Credentials:
    """A new IAM user with one inline policy and an access key; an existing one gets the policy and another key."""
    backend = iam()
    if name not in backend.users:
        backend.create_user(region, name)
    backend.put_user_policy(name, "policy", policy)
    key = backend.create_access_key(name)
    return Credentials(access_key_id=key.access_key_id, secret_access_key=key.secret_access_key)


def create_configuration(region: str, new: NewConfiguration) -> None:
    """A new launch configuration."""
    autoscaling_backends[ACCOUNT_ID][region].create_launch_configuration(
        name=new.name, image_id=new.image_id, key_name=None, kernel_id="", ramdisk_id="", security_groups=[],
        user_data=parse_user_data(new.user_data or None), instance_type=new.instance_type, instance_monitoring=False,
        instance_profile_name=None, spot_price=None, ebs_optimized=False, associate_public_ip_address=False,
        block_device_mappings=[],
    )  # fmt: skip


def create_template(region: str, new: NewTemplate) -> str:
    """A new launch template, or another version of the one of that name; returns its id."""
    data = {"InstanceType": new.instance_type, "ImageId": new.image_id}
    backend = ec2(region)
    if new.name not in backend.launch_template_name_to_ids:
        return backend.create_launch_template(new.name, "", data, {}).id
    template = backend.get_launch_template_by_name(new.name)
    version = template.create_version(data, "")
    if new.make_default:
        template.default_version_number = version.number
    return template.id


def catalogue(region: str) -> Catalogue:
    """What moto knows of launch configurations and launch templates."""
    configurations = autoscaling_backends[ACCOUNT_ID][region].launch_configurations
    return Catalogue(
        configurations={
            name: Machine(instance_type=one.instance_type or "", image_id=one.image_id or "")
            for name, one in list(configurations.items())
        },
        templates={
            one.id: Template(
                id=one.id, name=one.name, default=one.default_version_number,
                versions=tuple(
                    Machine(instance_type=version.instance_type, image_id=version.image_id) for version in one.versions
                ),
            )
            for one in list(ec2(region).launch_templates.values())
        },
    )  # fmt: skip


def subnet_zones(region: str, subnet_ids: Sequence[str]) -> list[str]:
    """The zones of subnets, in their order."""
    return [ec2(region).get_subnet(id_).availability_zone for id_ in subnet_ids]
