"""A citation stays in a summary only if its lines are at hand and hold what the sentence says."""

import pytest

from buoyline.compression.citations import with_checked_citations
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import Draft, SourceMessage, SummaryRequest
from buoyline.compression.summary_text import ArchiveLocation
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter

TEXT = ("The retry limit is 4096.", "Port 8443 is taken by /srv/app/config.yaml.")
RESULT = "tool_result-c1.txt"


def _checked(sentence: str, carried: frozenset[Pointer] = frozenset()) -> tuple[str, tuple[str, ...]]:
    """Return a field that says *sentence* after the check, and the citations that were taken out of it.

    Lines 1 to 4 of the transcript are at hand; of the result's 900 lines none is.
    """
    message = {"role": "user", "content": "\n".join(TEXT)}
    lines = ("## 0 · user", *TEXT, "")
    source = SourceMessage(0, detect(message).view(message), Pointer("transcript.md", 1, 4), (), lines)
    place = ArchiveLocation(0, 1, "r", "/w/transcript.md", "transcript.md", ((1, 4),), {RESULT: 900}, carried)
    request = SummaryRequest([source], None, 1_000, default_counter())
    draft, dropped = with_checked_citations(Draft("model", {"current_state": sentence}, ()), request, place)
    return draft.fields["current_state"], dropped


@pytest.mark.parametrize("claim", ["The limit is 77123 in ENG-9.", "Nobody knows why."])
def test_a_citation_of_lines_that_are_not_at_hand_is_taken_out(claim: str) -> None:
    """Whether its sentence holds an exact string or none: the lines exist, but nobody has read them."""
    assert _checked(f"{claim} [{RESULT}:500-510]") == (claim, (f"{RESULT}:500-510",))


def test_a_citation_of_lines_that_are_not_at_hand_is_moved_to_those_that_say_it() -> None:
    said, dropped = _checked(f"/srv/app/config.yaml takes port 8443. [{RESULT}:500-510]")
    assert (said, dropped) == ("/srv/app/config.yaml takes port 8443. [transcript.md:3]", ())


def test_a_citation_of_the_last_summary_stays_although_its_lines_are_not_at_hand() -> None:
    sentence = f"The limit is 77123. [{RESULT}:500-510]"
    assert _checked(sentence, frozenset({Pointer(RESULT, 500, 510)})) == (sentence, ())


def test_a_citation_that_holds_stays() -> None:
    assert _checked("Port 8443 is taken. [transcript.md:3]") == ("Port 8443 is taken. [transcript.md:3]", ())
