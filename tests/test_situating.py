"""What managers are shown of a window's context, where most of it was shown before."""

from hypothesis import given
from hypothesis import strategies as st

from buoyline.tokens import HeuristicCounter
from buoyline.window.state import Entry, Messages, Showing, State, entry_of, situation_of

COUNTER = HeuristicCounter()


def entry(number: int, *, role: str = "user", pinned: bool = False) -> Entry:
    return entry_of({"role": role, "content": f"Text {number % 3}."}, number, COUNTER, dialect="openai", pinned=pinned)


def test_what_was_shown_before_is_shown_as_the_same_object() -> None:
    showing, entries, stubs = Showing(), [entry(0), entry(1)], dict[str, str]()
    before = showing.held(entries, stubs)
    after = showing.held([*entries, entry(2)], stubs)
    assert all(now is then for now, then in zip(after, before, strict=False))


def test_another_form_of_a_message_is_looked_at_anew() -> None:
    showing, first, second, stubs = Showing(), entry(0), entry(1), dict[str, str]()
    showing.held([first, second], stubs)
    assert showing.held([entry(0, pinned=True), second], stubs)[0].pinned


def test_a_text_that_became_a_stub_since_is_seen() -> None:
    showing, entries, stubs = Showing(), [entry(0)], dict[str, str]()
    assert showing.held(entries, stubs)[0].replaced_parts == frozenset()
    stubs["Text 0."] = "a file"
    assert showing.held(entries, stubs)[0].replaced_parts == {-1}


def test_what_is_no_longer_shown_is_forgotten_with_the_next_message() -> None:
    showing, entries, stubs = Showing(), [entry(number) for number in range(10)], dict[str, str]()
    showing.held(entries, stubs)
    showing.held([*entries[8:], entry(10)], stubs)
    assert len(showing._held) == len(showing._entries) == 3


@given(st.data())
def test_what_is_remembered_shows_what_a_new_look_would(data: st.DataObject) -> None:
    messages, showing, stubs = Messages(), Showing(), dict[str, str]()
    for _ in range(data.draw(st.integers(1, 12))):
        match data.draw(st.sampled_from(["add", "add", "replace", "leave", "stub"])):
            case "replace" if len(messages):
                at = data.draw(st.integers(0, len(messages) - 1))
                role = messages[at].message.role
                other = entry(messages.first + at, role=role, pinned=data.draw(st.booleans()))
                messages = messages.changed({at: other})
            case "leave":
                messages = messages.without(data.draw(st.integers(0, len(messages))))
            case "stub":
                stubs[f"Text {data.draw(st.integers(0, 2))}."] = "a file"
            case _:
                messages = messages.extended(
                    [entry(messages.end, role=data.draw(st.sampled_from(["user", "assistant"])))]
                )
        state = State(messages=messages, archived_answers=data.draw(st.integers(0, 9)))
        shown, anew = (situation_of(state, COUNTER, 1_000, stubs=stubs, showing=one) for one in (showing, Showing()))
        assert shown == anew
        assert [held.native for held in shown.messages] == messages.shown
        assert shown.tokens == 1_000 + messages.tokens
        answers = sum(held.message.role == "assistant" for held in shown.messages)
        assert shown.model_calls == state.archived_answers + answers
