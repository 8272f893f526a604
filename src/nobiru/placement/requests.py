"""What a pod asks of a node: amounts of resources, and ports of the host.

It refuses to know: nodes, and other pods.  Invariant: the amounts are those that kube-scheduler counts, in
kernel.quantity's units; an amount that cannot be read is reported by its field, never guessed and never raised.
"""

from collections.abc import Mapping

from nobiru.kernel.errors import QuantityError
from nobiru.kernel.objects import Container, PodSpec, ResourceRequirements
from nobiru.kernel.quantity import resource_amount

Amounts = dict[str, int]
HostPort = tuple[str, str, int]  # (protocol, host ip, port); "0.0.0.0" means every address

# Resources that a pod's own `resources` may set over its containers': component-helpers resource/helpers.go.
_POD_LEVEL = ("cpu", "memory")
_ALL_ADDRESSES = "0.0.0.0"


def effective_request(spec: PodSpec) -> tuple[Amounts, str]:
    """(what the pod occupies, the first field that cannot be read or "").

    Units:   cpu millicores, all others whole units; "pods" is always 1.
    Source:  kubernetes 1.36 component-helpers resource/helpers.go PodRequests: containers and sidecars together, but at
             least what any init container needs beside the sidecars before it; pod-level amounts replace them; then
             overhead.  A container's missing request is its limit: the API server fills it in for pods, not templates.
    """
    reader = _Reader()
    total: Amounts = {}
    sidecars: Amounts = {}
    at_least: Amounts = {}
    for container in spec.containers or ():
        _add(total, reader.container(container, "spec.containers"))
    for container in spec.init_containers or ():
        amounts = reader.container(container, "spec.initContainers")
        if container.restart_policy == "Always":
            _add(total, amounts)
            _add(sidecars, amounts)
            _raise_to(at_least, sidecars)
        else:
            beside = dict(sidecars)
            _add(beside, amounts)
            _raise_to(at_least, beside)
    _raise_to(total, at_least)
    pod_level = reader.amounts(spec.resources.requests if spec.resources else None, "spec.resources.requests")
    total.update({name: amount for name, amount in pod_level.items() if _is_pod_level(name)})
    _add(total, reader.amounts(spec.overhead, "spec.overhead"))
    total["pods"] = 1
    return total, reader.problem


def _is_pod_level(name: str) -> bool:
    return name in _POD_LEVEL or name.startswith("hugepages-")


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Amounts, floor: Amounts) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)


class _Reader:
    """Reads amounts and keeps the first problem; lives for one pod."""

    def __init__(self) -> None:
        self.problem = ""

    def container(self, container: Container, field: str) -> Amounts:
        resources = container.resources or ResourceRequirements()
        texts = {**(resources.limits or {}), **(resources.requests or {})}
        return self.amounts(texts, f"{field}[{container.name}].resources.requests")

    def amounts(self, texts: Mapping[str, str] | None, field: str) -> Amounts:
        amounts: Amounts = {}
        for name, text in (texts or {}).items():
            try:
                amounts[name] = resource_amount(name, text)
            except QuantityError as error:
                self.problem = self.problem or f"{field}.{name}: {error}"
        return amounts


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """The ports of the host that containers and sidecars take.

    Order:   sorted, each once.
    Source:  kubernetes 1.36 scheduler/util GetHostPorts.
    """
    holders = list(spec.containers or ())
    holders += [each for each in spec.init_containers or () if each.restart_policy == "Always"]
    found = {
        (port.protocol or "TCP", port.host_ip or _ALL_ADDRESSES, port.host_port)
        for container in holders
        for port in container.ports or ()
        if port.host_port > 0
    }
    return tuple(sorted(found))


def ports_clash(one: HostPort, other: HostPort) -> bool:
    """Whether two pods with these ports cannot share a node.

    Source:  kube-scheduler framework HostPortInfo.CheckConflict: the unspecified address clashes with every address.
    """
    if one[0] != other[0] or one[2] != other[2]:
        return False
    return one[1] == other[1] or _ALL_ADDRESSES in (one[1], other[1])


def amounts_of(texts: Mapping[str, str] | None) -> tuple[Amounts, str]:
    """(a node's amounts, the first one that cannot be read or ""): one unreadable amount is left out, not the node."""
    reader = _Reader()
    return reader.amounts(texts, "status.allocatable"), reader.problem
