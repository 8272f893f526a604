"""The agenda of topics."""

from hypothesis import given
from hypothesis import strategies as st

from nobiru.sim.agenda import Agenda


def test_earlier_wins() -> None:
    """A topic is looked at once, at the earliest moment that anybody asked for."""
    agenda: Agenda[str] = Agenda()
    agenda.put("a", 50)
    agenda.put("a", 20)
    agenda.put("a", 90)
    agenda.put("b", 30)

    assert agenda.next_ms() == 20
    assert agenda.pop(25, 10) == ["a"]
    assert agenda.pop(100, 10) == ["b"]
    assert (agenda.next_ms(), len(agenda)) == (None, 0)


def test_no_more_than_asked_for() -> None:
    """What is due beyond `count_max` stays due."""
    agenda: Agenda[int] = Agenda()
    for topic in range(5):
        agenda.put(topic, 0)

    assert agenda.pop(0, 3) == [0, 1, 2]
    assert agenda.pop(0, 3) == [3, 4]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100))), st.integers(0, 100))
def test_against_the_plain_rule(puts: list[tuple[int, int]], now_ms: int) -> None:
    """Due is exactly each topic whose earliest moment has come, in that order."""
    agenda: Agenda[int] = Agenda()
    earliest: dict[int, int] = {}
    for topic, due_ms in puts:
        agenda.put(topic, due_ms)
        earliest[topic] = min(due_ms, earliest.get(topic, due_ms))

    due = agenda.pop(now_ms, 1_000)

    assert sorted(due) == sorted(topic for topic, at_ms in earliest.items() if at_ms <= now_ms)
    assert [earliest[topic] for topic in due] == sorted(earliest[topic] for topic in due)
    assert agenda.next_ms() == min((at_ms for at_ms in earliest.values() if at_ms > now_ms), default=None)
