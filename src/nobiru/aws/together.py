"""Several questions to AWS at once."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TypeVar

from nobiru.kernel.errors import CloudError

T = TypeVar("T")


async def together(questions: Sequence[Coroutine[object, object, T]]) -> list[T]:
    """The answers in the questions' order; each question bounds its own time, the pool of threads bounds how many run.

    Raises:  CloudError, the first of those that came; the other questions are answered or cancelled by then.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each, name="aws question") for each in questions]
    except BaseExceptionGroup as group:
        ours, others = group.split(CloudError)
        if others is not None or ours is None:
            raise
        raise _first(ours) from group
    return [task.result() for task in running]


def _first(group: BaseExceptionGroup[CloudError]) -> CloudError:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
