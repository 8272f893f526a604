"""AWS's own sentences: refusals, causes and status messages, as the service words them.

It refuses to know: when they apply.  Clients parse these texts (stock-out or quota, which zone), so they follow AWS's
documentation ("Troubleshoot EC2 Auto Scaling", "Common errors") and answers quoted in public issue reports, 2013-2026.
"""

from datetime import UTC, datetime

from nobiru.sim.asg_state import FaultKind, FromMixed, Group, LaunchFault, Refused


def iso(at_ms: int) -> str:
    """The moment as causes write it: 2016-05-13T15:03:47Z."""
    return datetime.fromtimestamp(at_ms // 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def invalid(message: str) -> Refused:
    """A ValidationError."""
    return Refused(code="ValidationError", message=message)


def group_unknown(name: str) -> Refused:
    """No such group."""
    return invalid(f"AutoScalingGroup name not found - AutoScalingGroup {name} not found")


def group_exists() -> Refused:
    """A second group of that name."""
    return Refused(
        code="AlreadyExists",
        message="AutoScalingGroup by this name already exists - A group with the name already exists",
    )


def group_in_use() -> Refused:
    """Deleting a group that has instances, without force."""
    return Refused(
        code="ResourceInUse",
        message="You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) "
        "still in the group.",
    )


def above_max(wanted: int, max_size: int) -> Refused:
    """SetDesiredCapacity over the limit."""
    return invalid(f"New SetDesiredCapacity value {wanted} is above max value {max_size} for the AutoScalingGroup.")


def below_min(wanted: int, min_size: int) -> Refused:
    """SetDesiredCapacity under the limit."""
    return invalid(f"New SetDesiredCapacity value {wanted} is below min value {min_size} for the AutoScalingGroup.")


def bounds_crossed(min_size: int, max_size: int) -> Refused:
    """A group whose minimum is over its maximum."""
    return invalid(f"Max bound, {max_size}, must be greater than or equal to min bound, {min_size}")


def desired_outside(desired: int, min_size: int, max_size: int) -> Refused:
    """Creating or updating a group with a desired capacity outside its limits."""
    return invalid(
        f"Desired capacity:{desired} must be between the specified min size:{min_size} and max size:{max_size}"
    )


def instance_unknown(instance_id: str) -> Refused:
    """An instance that is in no group."""
    return invalid(f"Instance Id not found - No managed instance found for instance ID {instance_id}")


def at_min(min_size: int) -> Refused:
    """Terminating with a decrement that would go below the minimum."""
    return invalid(
        f"Currently, desiredSize equals minSize ({min_size}). Terminating instance without replacement will violate "
        "group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's min size."
    )


def instance_elsewhere(instance_id: str, name: str) -> Refused:
    """An instance that is not in the group named."""
    return invalid(f"The instance {instance_id} is not part of Auto Scaling group {name}.")


def access_denied(service: str, action: str, who_arn: str, resource: str = "") -> Refused:
    """No policy allows the action.  Source: AWS IAM "Troubleshoot access denied error messages"."""
    where = f" on resource: {resource}" if resource else ""
    sentence = (
        f"User: {who_arn} is not authorized to perform: {service}:{action}{where} "
        f"because no identity-based policy allows the {service}:{action} action"
    )
    if service == "ec2":
        message = f"You are not authorized to perform this operation. {sentence}"
        return Refused(code="UnauthorizedOperation", message=message, status=403)
    return Refused(code="AccessDenied", message=sentence, status=403)


def call_fault(kind: FaultKind, service: str, action: str, who_arn: str) -> Refused | None:
    """What AWS answers for such a fault; None where the call goes through."""
    match kind:
        case "throttle" if service == "ec2":
            return Refused(code="RequestLimitExceeded", message="Request limit exceeded.", status=503)
        case "throttle":
            return Refused(code="Throttling", message="Rate exceeded")
        case "deny":
            return access_denied(service, action, who_arn)
        case "unavailable":
            return Refused(
                code="ServiceUnavailable", message="The request has failed due to a temporary failure.", status=503
            )
        case "expired":
            message = "The security token included in the request is expired"
            return Refused(code="ExpiredToken", message=message, status=403)
        case "lost_reply" | "slow":
            return None


def desired_set(at_ms: int, before: int, after: int) -> str:
    """Cause: SetDesiredCapacity."""
    return (
        f"At {iso(at_ms)} a user request explicitly set group desired capacity changing the desired capacity "
        f"from {before} to {after}."
    )


def constraints_set(at_ms: int, group: Group, before: int) -> str:
    """Cause: UpdateAutoScalingGroup, `group` as it is after it."""
    changed = f" changing the desired capacity from {before} to {group.desired}" if before != group.desired else ""
    return (
        f"At {iso(at_ms)} a user request update of AutoScalingGroup constraints to min: {group.min_size}, "
        f"max: {group.max_size}, desired: {group.desired}{changed}."
    )


def group_created(at_ms: int, group: Group) -> str:
    """Cause: CreateAutoScalingGroup."""
    return (
        f"At {iso(at_ms)} a user request created an AutoScalingGroup changing the desired capacity "
        f"from 0 to {group.desired}."
    )


def gap_found(at_ms: int) -> str:
    """Cause: nobody asked, but instances are missing."""
    return f"At {iso(at_ms)} a difference between desired and actual capacity was found."


def launched(cause: str, at_ms: int, before: int, after: int) -> str:
    """Cause of one launch."""
    return (
        f"{cause}  At {iso(at_ms)} an instance was started in response to a difference between desired and actual "
        f"capacity, increasing the capacity from {before} to {after}."
    )


def selected(cause: str, at_ms: int, before: int, after: int, instance_id: str) -> str:
    """Cause of a termination that the group chose by itself: the harm that lowering desired capacity does."""
    return (
        f"{cause}  At {iso(at_ms)} an instance was taken out of service in response to a difference between desired and "
        f"actual capacity, shrinking the capacity from {before} to {after}.  At {iso(at_ms)} instance {instance_id} was "
        "selected for termination."
    )


def asked_to_go(at_ms: int, instance_id: str, before: int, after: int) -> str:
    """Cause: TerminateInstanceInAutoScalingGroup."""
    shrinking = f", shrinking the capacity from {before} to {after}" if after < before else ""
    return f"At {iso(at_ms)} instance {instance_id} was taken out of service in response to a user request{shrinking}."


def found_dead(at_ms: int) -> str:
    """Cause: the machine was stopped behind the group's back."""
    return (
        f"At {iso(at_ms)} an instance was taken out of service in response to an EC2 health check indicating it has been "
        "terminated or stopped."
    )


ALL_PROTECTED = "Could not scale to desired capacity because all remaining instances are protected from scale-in."


def launch_failed(fault: LaunchFault, source: object, zone: str, machine: tuple[str, str], others: list[str]) -> str:
    """StatusMessage of a failed launch; `machine` is (instance type, image id), `others` the zones that had room."""
    reason = f"{fault.message or _reason(fault, zone, machine, others)} Launching EC2 instance failed."
    if not isinstance(source, FromMixed) or fault.message:
        return reason
    code = {"capacity": "InsufficientInstanceCapacity", "quota": "VcpuLimitExceeded", "image": "InvalidAMIID.NotFound"}
    if fault.kind == "spot":
        return f"Could not launch Spot Instances. UnfulfillableCapacity - {reason}"
    return f"Could not launch On-Demand Instances. {code[fault.kind]} - {reason}"


def _reason(fault: LaunchFault, zone: str, machine: tuple[str, str], others: list[str]) -> str:
    instance_type, image_id = machine
    match fault.kind:
        case "capacity":
            choosing = f" or choosing {', '.join(others)}" if others else ""
            return (
                f"We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested "
                f"({zone}). Our system will be working on provisioning additional capacity. You can currently get "
                f"{instance_type} capacity by not specifying an Availability Zone in your request{choosing}."
            )
        case "quota":
            return (
                "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance bucket "
                "that the specified instance type belongs to. Please visit "
                "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
            )
        case "image":
            return f"The image id '[{image_id}]' does not exist."
        case "spot":
            return "Unable to fulfill capacity due to your request configuration. Please adjust your request and try again."


def source_missing(name: str) -> str:
    """StatusMessage: what the group launches from was deleted."""
    return (
        f"The specified launch configuration or launch template version, {name}, does not exist. "
        "Launching EC2 instance failed."
    )
