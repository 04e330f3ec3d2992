import json

from hypothesis import given
from hypothesis import strategies as st

from buoyline.compression.citations import MARK, claims, mark, unverified, verified_claims

TEXT = st.text(st.sampled_from("ab_B1290./:-` \"'\n[]“”…,\\(unverfd)\u00d7→·错"), max_size=80)


def test_what_is_exact_is_claimed_in_order_and_once() -> None:
    text = "Ran go test in src/app/main.go: 12 of 345 failed, see TestX_1 and main.go again, src/app/main.go."
    assert claims(text) == ("src/app/main.go", "12", "345", "TestX_1", "main.go")


def test_a_quoted_error_is_claimed_and_other_quotations_are_not() -> None:
    text = 'It said "ValueError: bad value here" and then "all is well".'
    assert claims(text) == ("ValueError", "ValueError: bad value here")
    assert claims("run `make it → error: no` and “a `b” or error: c`") == ()


def test_pointers_own_counts_and_what_stands_at_a_cut_are_no_claims() -> None:
    assert claims("Changed it \u00d712 [transcript.md:120-135] and foo_b… and 7") == ()
    assert claims("Changed it [tool_result-a_1.txt:120-135,141,1000-1007]") == ()


def test_a_claim_has_to_stand_as_a_whole() -> None:
    assert unverified("port 80", ["listening on 8080"]) == ("80",)
    assert unverified("port 80", ["listening on 8080", "listening on :80"]) == ()
    assert unverified("foo_bar", ["foo_bar_baz", "a_foo_bar"]) == ("foo_bar",)


def test_no_two_messages_back_a_claim_together() -> None:
    assert unverified("see foo_bar", ["foo", "_bar"]) == ("foo_bar",)
    error = "ValueError: bad value here"
    assert unverified(f'It said "{error}".', ["ValueError: bad", "value here"]) == (error,)
    assert unverified("app/main.go", ["/home/me/app/main.go:12"]) == ()


def test_json_and_its_escapes_back_a_claim_too() -> None:
    assert unverified("it is foo_bar", [r'{"text":"one\nfoo_bar"}']) == ()
    assert unverified('said "error: no such  file"', [r"{\"x\":\"error: no\nsuch file\"}"]) == ()


def test_arguments_with_an_odd_quotation_mark_are_backed_by_their_call_alone() -> None:
    said = 'note(title=say "Error: no such file, line=3, content="quoted and more)'
    call = {"title": 'say "Error: no such file', "line": 3, "content": '"quoted and more'}
    assert unverified(said, [json.dumps(call)]) == ()
    assert unverified(said, [json.dumps(call, separators=(",", ":"))]) == ()
    assert unverified(said, [json.dumps({"role": "assistant", "arguments": json.dumps(call)})]) == ()
    for other in ({**call, "line": 4}, {**call, "title": 'say "Error: no file'}):
        assert unverified(said, [json.dumps(other)]) == ("Error: no such file, line=3, content=",)
    assert unverified(said, ["Error: no such file", "line", "content"]) == ("Error: no such file, line=3, content=",)


def test_thousands_may_be_written_with_and_without_commas() -> None:
    assert unverified("12,345 rows", ["rows: 12345"]) == ()
    assert unverified("12,345 rows", ["rows: 12346"]) == ("12,345",)


def test_a_message_that_quotes_a_citation_is_verified() -> None:
    said = 'the log has "error in [transcript.md:1-2] the pump" twice'
    assert claims(said)
    assert unverified(said, [said]) == ()


def test_without_texts_everything_is_unverified() -> None:
    assert unverified("foo_bar", []) == ("foo_bar",)
    assert unverified("nothing exact", []) == ()


def test_each_place_of_a_claim_is_marked_and_nothing_else() -> None:
    text = "foo_bar, a/foo_bar.py and foo_bar [transcript.md:1-2]."
    assert mark(text, ["foo_bar"]) == f"foo_bar{MARK}, a/foo_bar.py and foo_bar{MARK} [transcript.md:1-2]."
    assert mark(text, []) == text


@given(TEXT)
def test_marking_twice_changes_nothing_and_unmarking_gives_the_text(text: str) -> None:
    text = text.replace(MARK, "")
    doubtful = claims(text)
    marked = mark(text, doubtful)
    assert mark(marked, doubtful) == marked
    assert marked.count(MARK) >= len(doubtful) > 0 or marked == text
    assert marked.replace(MARK, "") == text
    assert claims(marked) == doubtful


@given(TEXT)
def test_a_text_backs_its_own_claims(text: str) -> None:
    assert unverified(text, [text]) == ()


def test_what_is_not_marked_is_backed_and_pointers_and_cut_words_are_not() -> None:
    said = 'Port 48151 in /srv/x/conf.yaml [transcript.md:80-99], not foo_b… in /srv/y/other.py: "error: no host".'
    assert verified_claims(said) == claims(said)
    marked = mark(said, ["48151", "/srv/y/other.py", "error: no host"])
    assert verified_claims(marked) == ("/srv/x/conf.yaml",)


@given(TEXT)
def test_a_claim_is_backed_unless_it_is_marked(text: str) -> None:
    plain = text.replace(MARK, "")
    doubtful = claims(plain)[::2]
    assert verified_claims(mark(plain, doubtful)) == claims(plain)[1::2]
