"""The local copy of one resource kind: listed, then followed by watching, for ever.

`Cache` holds, `follow` does the talking.  An expired revision lists again, and objects that vanished meanwhile are told as deleted;
a lost line resumes; a silent server is left; a revision that brings only trouble is given up.  A kind that is refused or not served
is `denied`: a fact, tried again ever more slowly; of a kind that was read until now, only once that lasts.
Invariant: listeners see every change exactly once, in order, between two awaits.
"""

import asyncio
import gc
import random
from collections.abc import Callable, Iterator
from typing import Generic, Never, TypeVar

from msgspec import Struct

from nobiru.kernel.clock import Clock
from nobiru.kernel.errors import KubeDenied, KubeError, KubeNotFound, KubeRejected, KubeThrottled, RevisionExpired
from nobiru.kernel.objects import Key, KubeObject
from nobiru.kube.client import Client, Resource
from nobiru.kube.watch import Bookmark, Delete, EventDecoder, Upsert
from nobiru.sinks.log import Log

T = TypeVar("T", bound=KubeObject)
log = Log("cache")

# The server ends a watch after a time that we choose; spread out, so that not all kinds come back at once (client-go: 5 to 10 min).
WATCH_S_MIN, WATCH_S_MAX = 300, 600
# API servers send a bookmark about once a minute: silence beyond that is a dead line.
SILENCE_S_MAX = 75.0
BACKOFF_S_FIRST, BACKOFF_S_MAX = 0.2, 10.0
# A revision that brought nothing but trouble for this long is given up.  After etcd was restored from a backup ours lies in the
# server's future: watches from it are refused as "too large", or stay silent, for ever.  Long enough for a server to restart
# without all its clients listing everything again.
GIVE_UP_S = 300.0
LASTED_MS_MIN = 1_000  # a watch that ends sooner counts as a failure, or a confused server would be asked without pause
DENIED_S = 60.0  # a refused kind is tried again after this long at last: somebody may have granted it
# An API server that just started refuses everybody until it has read its roles (1.36: for up to two seconds), so a kind that was
# read until now is not refused before this long.
DOUBT_S = 10.0
SAID_AGAIN_MS = 60_000  # the same trouble of the same kind
GC_ITEMS_MIN = 5_000  # below this many items collecting garbage during a list costs nothing


class Follow(Struct, frozen=True, kw_only=True):
    """How to follow: limits of time, and the seed of every jitter."""

    seed: int = 0
    silence_s_max: float = SILENCE_S_MAX
    watch_s: tuple[int, int] = (WATCH_S_MIN, WATCH_S_MAX)
    backoff_s: tuple[float, float] = (BACKOFF_S_FIRST, BACKOFF_S_MAX)
    denied_s: float = DENIED_S
    doubt_s: float = DOUBT_S
    give_up_s: float = GIVE_UP_S
    namespace: str = ""
    fields: str = ""


def _same(item: T, before: T | None) -> T:
    return item


class Cache(Generic[T]):
    """The copy."""

    def __init__(self, resource: Resource, type_: type[T], admit: Callable[[T, T | None], T] = _same) -> None:
        """`admit` turns each decoded object into what is kept; it is given what was kept before.

        It may share equal parts to save memory.
        """
        self.resource = resource
        self.type = type_
        self._admit = admit
        self._items: dict[Key, T] = {}
        self._upserted: list[Callable[[T | None, T], None]] = []
        self._deleted: list[Callable[[T], None]] = []
        self.revision = ""  # opaque; "" means "list first"
        self.synced = asyncio.Event()
        self.denied = ""  # the server's words, where it refuses the kind
        self.skipped = 0  # objects that could not be read: with any, what is not here may be there
        self.fresh_ms = 0  # by the monotonic clock: when the server was last heard
        self.moved_ms = 0  # by the monotonic clock: when a list, an event or a bookmark last gave a revision

    def listen(self, upserted: Callable[[T | None, T], None], deleted: Callable[[T], None]) -> None:
        """Have every change told: (object before or None, object now), and the object that went."""
        self._upserted.append(upserted)
        self._deleted.append(deleted)

    def get(self, key: Key) -> T | None:
        return self._items.get(key)

    def values(self) -> Iterator[T]:
        return iter(self._items.values())

    def __len__(self) -> int:
        return len(self._items)

    def freeze(self) -> tuple[T, ...]:
        """All objects by key."""
        return tuple(self._items[key] for key in sorted(self._items))

    def upsert(self, item: T) -> None:
        """Take an object in; one that a new list shows as it was is no news."""
        key = (item.metadata.namespace, item.metadata.name)
        before = self._items.get(key)
        if before is not None and _unchanged(before, item):
            return
        kept = self._admit(item, before)
        self._items[key] = kept
        for tell in self._upserted:
            tell(before, kept)

    def remove(self, key: Key) -> None:
        """Let an object go; an unknown one went already."""
        before = self._items.pop(key, None)
        if before is not None:
            for tell in self._deleted:
                tell(before)

    def replaced(self, seen: set[Key] | None, revision: str) -> None:
        """A list ended: what it did not show is gone; None where all that is here is of this list."""
        if seen is not None:
            for key in [key for key in self._items if key not in seen]:
                self.remove(key)
        self.revision = revision
        self.denied = ""
        self.synced.set()


def _unchanged(before: KubeObject, now: KubeObject) -> bool:
    """Whether both are the same object in the same version."""
    old, new = before.metadata, now.metadata
    return new.resource_version != "" and (old.resource_version, old.uid) == (new.resource_version, new.uid)


async def follow(cache: Cache[T], client: Client, clock: Clock, how: Follow) -> Never:
    """Keep the cache current until cancelled."""
    chance = random.Random(how.seed)
    wait = _Backoff(how.backoff_s, chance)
    refusals = _Refusals(how, chance)
    trouble = _Trouble(cache.resource.plural, clock)
    while True:
        try:
            if not cache.revision:
                await _list(cache, client, clock, how)
            await _watch(cache, client, clock, how, chance, wait)
        except RevisionExpired:
            cache.revision = ""
        except (KubeDenied, KubeNotFound) as error:
            # No missing right: the server does not know us, or its own roles, for a moment.
            if error.retry_after_ms is not None or refusals.in_doubt(cache, clock.monotonic_ms()):
                trouble.tell("not recognised", error, again=True)
                await wait.sleep()
                continue
            if not cache.denied:
                log.warning("kind cannot be read", kind=cache.resource.plural, error=str(error))
            cache.denied = str(error)
            cache.revision = ""
            cache.synced.set()
            await refusals.again.sleep()
            continue
        except KubeError as error:
            # One lost watch is everyday life: servers without bookmarks are silent where nothing happens.
            trouble.tell("watch lost", error, again=wait.failures > 0)
            idle_ms = clock.monotonic_ms() - cache.moved_ms
            if isinstance(error, KubeRejected) or idle_ms >= how.give_up_s * 1000:
                cache.revision = ""
            await wait.sleep(error.retry_after_ms if isinstance(error, KubeThrottled) else None)
            continue
        await wait.sleep()


class _Trouble:
    """What was said of a kind's trouble: the same again only after a while, for a server may be away for hours."""

    def __init__(self, kind: str, clock: Clock) -> None:
        self._kind, self._clock = kind, clock
        self._said = ""
        self._said_ms = 0

    def tell(self, message: str, error: KubeError, *, again: bool) -> None:
        """Say it, as a warning where it is not the first in a row."""
        now_ms, text = self._clock.monotonic_ms(), f"{message}: {error}"
        fresh = text != self._said or now_ms - self._said_ms >= SAID_AGAIN_MS
        if again and fresh:
            self._said, self._said_ms = text, now_ms
            log.warning(message, kind=self._kind, error=str(error))
        else:
            log.detail(message, kind=self._kind, error=str(error))


class _Backoff:
    """Waits that double until something worked."""

    def __init__(self, bounds_s: tuple[float, float], chance: random.Random) -> None:
        self._bounds_s, self._chance = bounds_s, chance
        self._next_s = bounds_s[0]
        self.failures = 0  # in a row

    def worked(self) -> None:
        self._next_s = self._bounds_s[0]
        self.failures = 0

    async def sleep(self, least_ms: int | None = None) -> None:
        """Wait; at least for as long as the server asked."""
        wait_s = self._next_s * (0.5 + self._chance.random())
        self._next_s = min(self._next_s * 2, self._bounds_s[1])
        self.failures += 1
        await asyncio.sleep(max(wait_s, (least_ms or 0) / 1000))


class _Refusals:
    """Whether a refusal is a fact, and when to ask again."""

    def __init__(self, how: Follow, chance: random.Random) -> None:
        self.again = _Backoff((how.backoff_s[0], how.denied_s), chance)
        self._doubt_ms = how.doubt_s * 1000
        self._since_ms: int | None = None

    def in_doubt(self, cache: Cache[T], now_ms: int) -> bool:
        """Whether the kind was read until a moment ago."""
        if self._since_ms is None or cache.fresh_ms > self._since_ms:
            self._since_ms = now_ms
            self.again.worked()
        return cache.revision != "" and now_ms - self._since_ms < self._doubt_ms


class _Listing:
    """No garbage collection while any cache lists: a full one in the middle stops the loop for half a second.

    Caches list at the same time, so the last one to end turns it on again.
    """

    def __init__(self) -> None:
        self._count = 0
        self._collecting = True

    def __enter__(self) -> None:
        if self._count == 0:
            self._collecting = gc.isenabled()
            gc.disable()
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if self._count == 0 and self._collecting:
            gc.enable()


_listing = _Listing()


async def _list(cache: Cache[T], client: Client, clock: Clock, how: Follow) -> None:
    seen: set[Key] | None = set() if len(cache) else None  # into an empty cache: nothing can have vanished
    revision, skipped = "", 0
    with _listing:
        async for page in client.pages(cache.resource, cache.type, how.namespace, fields=how.fields):
            for item in page.items():
                if item is None:
                    skipped += 1
                    continue
                cache.upsert(item)
                if seen is not None:
                    seen.add((item.metadata.namespace, item.metadata.name))
            revision = page.metadata.resource_version
            cache.fresh_ms = clock.monotonic_ms()
        if len(cache) >= GC_ITEMS_MIN:
            gc.freeze()  # what stays for ever is not looked at again
    cache.skipped = skipped
    cache.replaced(seen, revision)
    cache.moved_ms = clock.monotonic_ms()


async def _watch(
    cache: Cache[T], client: Client, clock: Clock, how: Follow, chance: random.Random, wait: _Backoff
) -> None:
    """Follow until the server ends the watch.  Raises KubeError."""
    decoder = EventDecoder(cache.type)
    timeout_s = chance.randint(*how.watch_s)
    opened_ms: int | None = None
    try:
        async with client.watch(
            cache.resource,
            how.namespace,
            since=cache.revision,
            timeout_s=timeout_s,
            silence_s=how.silence_s_max,
            fields=how.fields,
        ) as chunks:
            cache.fresh_ms = opened_ms = clock.monotonic_ms()
            async for chunk in chunks:
                _apply(cache, decoder, chunk)
                cache.fresh_ms = cache.moved_ms = clock.monotonic_ms()
                if cache.fresh_ms - opened_ms >= LASTED_MS_MIN:
                    wait.worked()
    finally:
        if opened_ms is not None and clock.monotonic_ms() - opened_ms >= LASTED_MS_MIN:
            wait.worked()


def _apply(cache: Cache[T], decoder: EventDecoder[T], chunk: bytes) -> None:
    """Take over the events that the chunk completes.  Raises KubeError where the server sent one."""
    before = decoder.skipped
    events = decoder.feed(chunk)
    cache.skipped += decoder.skipped - before
    for event in events:
        match event:
            case Upsert(item=item, revision=revision):
                cache.upsert(item)
            case Delete(item=item, revision=revision):
                cache.remove((item.metadata.namespace, item.metadata.name))
            case Bookmark(revision=revision):
                pass
        cache.revision = revision
