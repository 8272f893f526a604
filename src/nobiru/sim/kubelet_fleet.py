"""The machines whose kubelets are played: those that the cloud says run, and the static ones.

It refuses to know: the API server.  Invariant: a machine keeps the profile that it started with, until a test gives it
another; a machine that the cloud no longer says runs is off.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from nobiru.kernel.clock import Clock
from nobiru.sim.cloud_api import CloudInstance
from nobiru.sim.instances import Instances
from nobiru.sim.kubelet_model import Kubelets, Machine, Profile, StaticNode
from nobiru.sim.machines import Hardware, hardware_of, shape_of


class Fleet:
    """The machines that run, by the name of their Node."""

    def __init__(self, config: Kubelets, instances: Instances, clock: Clock) -> None:
        self._config, self._instances, self._clock = config, instances, clock
        self._groups = dict(config.groups)
        self._special = [(each.group, each.profile, each.count) for each in config.special]
        self._static: set[str] = set()
        self._machines: dict[str, Machine] = {}
        self._group_of: dict[str, str] = {}  # by Node, also of machines that are gone
        self._tell: list[Callable[[str], None]] = []
        for node in config.static:
            self.add_static(node)
        instances.listen(self._listed)

    @property
    def machines(self) -> Mapping[str, Machine]:
        """A live view of them."""
        return self._machines

    def group_of(self, node: str) -> str:
        """The group whose machine has, or had, the Node of that name; "" where none did."""
        return self._group_of.get(node, "")

    def listen(self, changed: Callable[[str], None]) -> None:
        """Have the names told of machines that start, change or go."""
        self._tell.append(changed)

    def set_group_profile(self, group: str, profile: Profile) -> None:
        """Machines of that group that start from now on behave so."""
        self._groups[group] = profile

    def set_profile(self, node: str, profile: Profile) -> None:
        """The machine of that Node behaves so from now on; KeyError where there is none."""
        machine = self._machines[node]
        shape = shape_of(profile.image, self._hardware(machine.instance_type))
        self._put(replace(machine, profile=profile, shape=shape))

    def add_static(self, node: StaticNode) -> None:
        """A machine outside any group starts."""
        provider_id = node.provider_id
        if not provider_id and node.instance_id:
            provider_id = f"aws:///{node.zone}/{node.instance_id}"
        self._static.add(node.name)
        self._put(
            Machine(
                node=node.name, provider_id=provider_id, zone=node.zone, region=self._instances.region,
                instance_type=node.instance_type, instance_id=node.instance_id or node.name, private_ip=node.private_ip,
                started_ms=self._clock.now_ms(), profile=node.profile,
                shape=shape_of(node.profile.image, self._hardware(node.instance_type)),
            )
        )  # fmt: skip

    def stop(self, node: str) -> None:
        """The machine of that Node is switched off; its Node stays.  One that the cloud lists as running starts again at
        the cloud's next change: end those through the cloud."""
        self._static.discard(node)
        if self._machines.pop(node, None) is not None:
            self._changed(node)

    def _listed(self) -> None:
        running = {each.private_dns_name: each for each in self._instances.listed.values() if each.ready}
        for name, machine in list(self._machines.items()):
            if name not in self._static and (name not in running or running[name].id != machine.instance_id):
                self.stop(name)
        for name, instance in running.items():
            if name not in self._machines:
                self._start(instance)

    def _start(self, instance: CloudInstance) -> None:
        profile = self._profile_for(instance.group)
        self._put(
            Machine(
                node=instance.private_dns_name, provider_id=f"aws:///{instance.zone}/{instance.id}",
                zone=instance.zone, region=self._instances.region, instance_type=instance.instance_type,
                instance_id=instance.id, private_ip=instance.private_ip,
                started_ms=min(self._clock.now_ms(), instance.launch_ms + (instance.boot_after_ms or 0)),
                group=instance.group, profile=profile,
                shape=shape_of(profile.image, self._hardware(instance.instance_type)),
            )
        )  # fmt: skip

    def _profile_for(self, group: str) -> Profile:
        for index, (wanted, profile, left) in enumerate(self._special):
            if wanted in ("", group) and left != 0:
                self._special[index] = (wanted, profile, None if left is None else left - 1)
                return profile
        return self._groups.get(group, self._config.default)

    def _hardware(self, instance_type: str) -> Hardware:
        return self._config.hardware.get(instance_type) or hardware_of(instance_type)

    def _put(self, machine: Machine) -> None:
        self._machines[machine.node] = machine
        self._group_of[machine.node] = machine.group
        self._changed(machine.node)

    def _changed(self, node: str) -> None:
        for tell in self._tell:
            tell(node)
