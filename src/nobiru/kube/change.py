"""Changing an object by whichever right the account has: a patch, or a full replacement where only `update` is granted.

The roles that came with Cluster Autoscaler grant `update` on nodes and on its status ConfigMap, never `patch`.
It refuses to know: what is changed.  Invariant: a replacement is the object as it was read, field by field, with the patch merged in, on
the revision that was read; a field that we do not know is never lost.
"""

from typing import Any, TypeVar

from nobiru.kernel.errors import KubeDenied
from nobiru.kube.client import Client, Resource

T = TypeVar("T")


class Changer:
    """Merge patches, or what comes to the same."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._only_update: set[str] = set()  # the resources whose patch was refused and whose update was not

    async def merge(self, resource: Resource, namespace: str, name: str, patch: dict[str, Any], type_: type[T]) -> T:
        """Apply a merge patch; one with a resourceVersion applies to that revision alone.

        Raises:  KubeConflict where the object changed meanwhile, KubeDenied where neither right is there, KubeError.
        """
        if resource.plural not in self._only_update:
            try:
                return await self._client.patch(resource, namespace, name, patch, type_)
            except KubeDenied as denied:
                if denied.retry_after_ms is not None:  # 401: we are not known at all, whatever we ask
                    raise
                return await self._first_replacement(resource, namespace, name, patch, type_, denied)
        try:
            return await self._replace(resource, namespace, name, patch, type_)
        except KubeDenied:
            self._only_update.discard(resource.plural)
            raise

    async def _first_replacement(
        self, resource: Resource, namespace: str, name: str, patch: dict[str, Any], type_: type[T], denied: KubeDenied
    ) -> T:
        try:
            written = await self._replace(resource, namespace, name, patch, type_)
        except KubeDenied:
            raise denied from None  # both are refused: the patch is what we would rather have
        self._only_update.add(resource.plural)
        return written

    async def _replace(self, resource: Resource, namespace: str, name: str, patch: dict[str, Any], type_: type[T]) -> T:
        found: dict[str, Any] = await self._client.get(resource, namespace, name, dict)
        return await self._client.update(resource, namespace, name, merged(found, patch), type_)


def merged(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The target with a merge patch applied; null removes a field.  Source: RFC 7386, section 2."""
    result = dict(target)
    for key, value in patch.items():
        before = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            result[key] = value
    return result
