"""What is to be looked at when: topics with the earliest moment at which each is due.

It refuses to know: clocks, tasks, what a topic is.  Invariant: a topic stands on it at most once, so it never holds more
entries than there are topics, but for those that moved to an earlier moment and are not yet past.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Topic = TypeVar("Topic", bound=Hashable)


class Agenda(Generic[Topic]):
    """Topics by due time; of equal times the one put down first comes first."""

    def __init__(self) -> None:
        self._due_ms: dict[Topic, int] = {}
        self._heap: list[tuple[int, int, Topic]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._due_ms)

    def put(self, topic: Topic, due_ms: int) -> None:
        """Look at the topic then, or earlier where it stands for earlier already."""
        known_ms = self._due_ms.get(topic)
        if known_ms is not None and known_ms <= due_ms:
            return
        self._due_ms[topic] = due_ms
        self._serial += 1
        heapq.heappush(self._heap, (due_ms, self._serial, topic))

    def drop(self, topic: Topic) -> None:
        """Never look at the topic again, unless it is put down anew."""
        self._due_ms.pop(topic, None)

    def pop(self, now_ms: int, count_max: int) -> list[Topic]:
        """Take what is due, earliest first, `count_max` at most."""
        due: list[Topic] = []
        while len(due) < count_max and self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, topic = heapq.heappop(self._heap)
            if self._due_ms.get(topic) == at_ms:
                del self._due_ms[topic]
                due.append(topic)
        return due

    def next_ms(self) -> int | None:
        """When something is due next."""
        while self._heap and self._due_ms.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
