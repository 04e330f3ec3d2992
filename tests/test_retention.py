"""Which sessions a policy lets go: limits are met, and what is named stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.errors import ConfigError
from buoyline.maintenance.gc import Retention, SessionUsage, taken_bytes

NOW_NS = 10**18
DAY_NS = 86_400 * 10**9
BLOBS = {"a": 100, "b": 10, "c": 1}

uses = st.builds(
    SessionUsage,
    session_id=st.text("abcdefgh", min_size=1, max_size=3),
    last_active_ns=st.integers(0, 20).map(lambda days: NOW_NS - days * DAY_NS),
    size_bytes=st.integers(0, 1_000),
    blobs=st.frozensets(st.sampled_from(sorted(BLOBS))),
)
sessions_strategy = st.lists(uses, max_size=12, unique_by=lambda use: use.session_id)
policies = st.builds(
    Retention,
    max_age_s=st.none() | st.integers(0, 21).map(lambda days: days * 86_400),
    max_sessions=st.none() | st.integers(0, 13),
    max_bytes=st.none() | st.integers(0, 6_000),
)


def use(name: str, days: int, size_bytes: int = 0, blobs: str = "") -> SessionUsage:
    return SessionUsage(name, NOW_NS - days * DAY_NS, size_bytes, frozenset(blobs))


def going(policy: Retention, *sessions: SessionUsage) -> list[tuple[str, str]]:
    return [(d.session.session_id, d.reason) for d in policy.expired(sessions, BLOBS, NOW_NS)]


@given(sessions_strategy, policies, st.data())
def test_what_stays_meets_every_limit_or_is_named(
    sessions: list[SessionUsage], policy: Retention, data: st.DataObject
) -> None:
    names = [session.session_id for session in sessions]
    kept = frozenset(data.draw(st.lists(st.sampled_from(names)))) if names else frozenset[str]()
    policy = Retention(policy.max_age_s, policy.max_sessions, policy.max_bytes, kept)
    gone = {departure.session.session_id for departure in policy.expired(sessions, BLOBS, NOW_NS)}
    staying = [session for session in sessions if session.session_id not in gone]
    free = [session for session in staying if session.session_id not in kept]

    assert not gone & kept
    if policy.max_age_s is not None:
        assert all(NOW_NS - session.last_active_ns <= policy.max_age_s * 10**9 for session in free)
    if policy.max_sessions is not None:
        assert len(free) <= policy.max_sessions
    if policy.max_bytes is not None and free:
        assert taken_bytes(staying, BLOBS) <= policy.max_bytes


@given(sessions_strategy, policies)
def test_no_session_goes_while_an_older_one_stays(sessions: list[SessionUsage], policy: Retention) -> None:
    gone = [departure.session for departure in policy.expired(sessions, BLOBS, NOW_NS)]
    staying = [session for session in sessions if session not in gone]

    assert gone == sorted(gone, key=lambda session: session.last_active_ns)
    newest_gone = max((session.last_active_ns for session in gone), default=0)
    assert all(session.last_active_ns >= newest_gone for session in staying)


@given(sessions_strategy, policies)
def test_the_order_in_which_sessions_are_listed_does_not_matter(
    sessions: list[SessionUsage], policy: Retention
) -> None:
    there = policy.expired(sessions, BLOBS, NOW_NS)
    assert there == policy.expired(sessions[::-1], BLOBS, NOW_NS)


@given(sessions_strategy)
def test_without_a_limit_every_session_stays(sessions: list[SessionUsage]) -> None:
    assert Retention().expired(sessions, BLOBS, NOW_NS) == ()


def test_each_limit_alone_lets_sessions_go() -> None:
    sessions = use("new", 1, 10), use("old", 9, 10), use("older", 20, 10)
    assert going(Retention(max_age_s=10 * 86_400), *sessions) == [("older", "age")]
    assert going(Retention(max_sessions=1), *sessions) == [("older", "count"), ("old", "count")]
    assert going(Retention(max_bytes=20), *sessions) == [("older", "bytes")]
    assert going(Retention(10 * 86_400, 2, 10), *sessions) == [("older", "age"), ("old", "bytes")]


def test_a_shared_blob_is_freed_with_the_last_session_that_refers_to_it() -> None:
    sessions = use("new", 1, 10, "c"), use("old", 2, 10, "a"), use("older", 3, 10, "ab")
    assert going(Retention(max_bytes=121), *sessions) == [("older", "bytes")]
    assert going(Retention(max_bytes=120), *sessions) == [("older", "bytes"), ("old", "bytes")]


def test_a_named_session_stays_and_counts() -> None:
    sessions = use("new", 1), use("old", 2), use("oldest", 3)
    assert going(Retention(max_sessions=1, kept=frozenset({"oldest"})), *sessions) == [("old", "count")]


def test_a_session_from_the_future_is_the_newest() -> None:
    assert going(Retention(max_age_s=0, max_sessions=1), use("now", 0), use("future", -3)) == [("now", "count")]


@pytest.mark.parametrize("limit", [-1, float("nan")])
def test_a_limit_that_cannot_be_meant_is_refused(limit: float) -> None:
    with pytest.raises(ConfigError, match="is not 0 or more"):
        Retention(max_age_s=limit)
    with pytest.raises(ConfigError, match="max_sessions"):
        Retention(max_sessions=-1)
    with pytest.raises(ConfigError, match="max_bytes"):
        Retention(max_bytes=-1)
