"""EC2's picture of the groups' instances: moto's EC2 is brought in step before it is asked about instances.

It refuses to know: what EC2 answers with.
Invariant: after follow() the instances asked for are in moto's EC2 under the same id, address, zone, type and tags, and
each that is gone is terminated there.  It is done only on demand: moto takes 3.5 ms for an instance (5.2.5, two cores).
"""

import threading
from collections.abc import Sequence

from moto.ec2.models import EC2Backend
from moto.ec2.models.instances import Instance as MotoInstance

from nobiru.sim.asg_state import Instance
from nobiru.sim.cloud_region import Region

# EC2's names and codes.  Source: AWS EC2 API "InstanceState".
STATES = {"Pending": ("pending", 0), "InService": ("running", 16), "Terminating": ("shutting-down", 32)}


class Mirror:
    """What of one region is in moto's EC2 already."""

    def __init__(self, region: Region, backend: EC2Backend) -> None:
        self._region = region
        self._backend = backend
        self._lock = threading.Lock()
        self._known: dict[str, MotoInstance] = {}

    def follow(self, ids: Sequence[str] = ()) -> None:
        """Bring moto's EC2 in step with the state, for these instances (none named: all) and those it has already."""
        with self._lock:
            wanted = frozenset(ids)
            state = self._region.read()
            existing = {id_: one for group in state.groups.values() for id_, one in group.instances.items()}
            for id_, instance in existing.items():
                twin = self._known.get(id_)
                if twin is None and ids and id_ not in wanted:
                    continue
                if twin is None:
                    twin = self._known[id_] = self._add(instance)
                twin._state.name, twin._state.code = STATES[instance.lifecycle]
            for id_ in [id_ for id_ in self._known if id_ not in existing]:
                twin = self._known.pop(id_)
                if twin.state != "terminated":
                    self._backend.terminate_instances([id_])

    def _add(self, instance: Instance) -> MotoInstance:
        reservation = self._backend.run_instances(
            instance.image_id, 1, None, [], instance_type=instance.instance_type, placement=instance.zone,
            is_instance_type_default=False, region_name=self._region.name, private_ip=instance.private_ip,
            block_device_mappings=None,
        )  # fmt: skip
        twin = reservation.instances[0]
        twin.id = instance.id  # moto finds instances by this field, and tags by it from here on
        twin.add_tags(dict(instance.tags))
        twin.lifecycle = "spot" if instance.spot else None
        return twin
