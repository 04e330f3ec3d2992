"""Where exact strings were seen, and which spelling of a path counts."""

from buoyline.compression.extractive.occurrences import OccurrenceIndex
from buoyline.compression.summary import SourceMessage
from buoyline.messages.registry import detect


def _seen(*texts: str) -> dict[str, int]:
    """Return how often each string counts in a conversation of these messages."""
    found = OccurrenceIndex()
    for index, text in enumerate(texts):
        message = {"role": "user", "content": text}
        found.add(SourceMessage(index, detect(message).view(message)), ())
    return {string.text: string.count for string in found.occurrences()}


def test_a_short_spelling_of_several_paths_counts_for_the_one_seen_most() -> None:
    often, seldom = "Look at /srv/b/app/main.py now.", "Look at /srv/a/app/main.py now."
    for texts in ([often] * 3 + [seldom], [seldom] + [often] * 3):
        found = _seen(*texts, "Then app/main.py again.", "And app/main.py.")
        assert found == {"/srv/b/app/main.py": 5, "/srv/a/app/main.py": 1}
    found = _seen(*[often.replace("/b/", "/a/")] * 3, seldom.replace("/a/", "/b/"), "Then app/main.py again.")
    assert found == {"/srv/a/app/main.py": 4, "/srv/b/app/main.py": 1}
