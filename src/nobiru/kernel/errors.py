"""The whole error tree of nobiru, in one place.

::

    NobiruError
    ├── ConfigError             the user's: a flag, a file, a tag; one line says what to do
    │   ├── QuantityError       not a Kubernetes quantity, or too large for int64
    │   └── DurationError       not a Go duration
    ├── WorldError              outside trouble: retried, counted, explained
    │   ├── KubeError
    │   │   ├── RevisionExpired     410: list again
    │   │   ├── KubeConflict        409: somebody else wrote first, or it exists already
    │   │   ├── KubeNotFound        404
    │   │   ├── KubeDenied          401, 403
    │   │   ├── KubeRejected        other 4xx: the request itself is wrong
    │   │   ├── KubeThrottled       429: too many requests, or an eviction that a PDB refuses
    │   │   └── KubeUnavailable     5xx, time-outs, lost connections
    │   └── CloudError
    │       ├── CloudThrottled      too many requests
    │       ├── NoCapacity          the cloud has no machine of that kind
    │       ├── CloudDenied         IAM refuses, or credentials are missing or expired
    │       ├── CloudRejected       the request itself is wrong: unknown group, size outside its limits
    │       └── CloudUnavailable    5xx, time-outs, lost connections
    └── InvariantError          ours: a bug

Edges translate library exceptions into this tree and chain them (``raise KubeDenied(...) from error``);
no library exception crosses an edge.  ``retry_after_ms`` says whether and when a retry makes sense:
None means that the same call would fail again until something else changes.
"""


class NobiruError(Exception):
    """Anything nobiru raises; `retry_after_ms` is None where a retry cannot help."""

    retry_after_ms: int | None = None

    def __init__(self, message: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        if retry_after_ms is not None:
            self.retry_after_ms = retry_after_ms


class ConfigError(NobiruError):
    """The user's input is wrong; the message names the flag, file or field and what to do."""


class QuantityError(ConfigError):
    """A text that is not a Kubernetes quantity, or whose value does not fit int64."""


class DurationError(ConfigError):
    """A text that is not a Go duration."""


class WorldError(NobiruError):
    """Trouble outside nobiru."""


class KubeError(WorldError):
    """Trouble with the API server."""


class RevisionExpired(KubeError):
    """The resource version is too old to watch from: list again."""

    retry_after_ms = 0


class KubeConflict(KubeError):
    """The object changed since it was read, or already exists: read it again."""

    retry_after_ms = 0


class KubeNotFound(KubeError):
    """The object or resource does not exist."""


class KubeDenied(KubeError):
    """Authentication failed or a right is missing."""


class KubeRejected(KubeError):
    """The API server found the request itself wrong."""


class KubeThrottled(KubeError):
    """The API server asks to slow down, or a PodDisruptionBudget refuses an eviction."""

    retry_after_ms = 1_000


class KubeUnavailable(KubeError):
    """The API server did not answer, or answered that it cannot now."""

    retry_after_ms = 1_000


class CloudError(WorldError):
    """Trouble with AWS."""


class CloudThrottled(CloudError):
    """AWS asks to slow down."""

    retry_after_ms = 2_000


class NoCapacity(CloudError):
    """AWS has no machine of the wanted kind in the wanted place."""

    retry_after_ms = 60_000


class CloudDenied(CloudError):
    """IAM refuses the action, or the credentials are missing, wrong or expired; `action` is the IAM action."""

    def __init__(self, message: str, *, action: str = "") -> None:
        super().__init__(message)
        self.action = action


class CloudRejected(CloudError):
    """AWS found the request itself wrong: an unknown group, a size outside the group's limits."""


class CloudUnavailable(CloudError):
    """AWS did not answer, or answered that it cannot now."""

    retry_after_ms = 1_000


class InvariantError(NobiruError):
    """Something that cannot be true is: a bug of ours."""
