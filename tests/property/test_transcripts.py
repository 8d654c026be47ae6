"""The laws of reading a transcript: in pieces or at once, it says the same; hooks and transcripts agree on keys."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clia.capture import claude_code
from clia.capture.events import PROMPT, SAID, ToolEvent, digest, small
from clia.capture.transcripts import TranscriptCursor, hook_key, read_events

_TEXTS = st.sampled_from(["Done.", " Done. ", "go on", "I look.", "[Request interrupted by user]", "ä\n\nb"])
_TIMES = st.integers(0, 9).map(lambda second: f"2026-11-15T10:00:0{second}.000Z")


def _line(kind: str, blocks: list[dict[str, Any]] | str, at: str, more: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "message": {"id": "m", "content": blocks}, "timestamp": at, **more}).encode() + b"\n"


_BLOCKS = st.one_of(
    _TEXTS.map(lambda text: {"type": "text", "text": text}),
    _TEXTS.map(lambda text: {"type": "thinking", "thinking": text}),
    st.sampled_from("abc").map(lambda name: {"type": "tool_use", "id": name, "name": "Read", "input": {"file_path": name}}),
    st.sampled_from("abc").map(lambda name: {"type": "tool_result", "tool_use_id": name, "content": "x", "is_error": name == "a"}),
)
_MORE = st.sampled_from([{}, {"promptId": "p1"}, {"promptId": "p2"}, {"isMeta": True}, {"agentId": "s1"}])
_LINES = st.one_of(
    st.builds(_line, st.sampled_from(["user", "assistant", "system", "summary"]), st.lists(_BLOCKS, max_size=3), _TIMES, _MORE),
    st.builds(_line, st.just("user"), _TEXTS, _TIMES, _MORE),
    st.sampled_from([b"\n", b"{broken\n", b"[1, 2]\n", b'"text"\n', b"\xff\xfe\n", b'{"type": 7, "message": []}\n', b"null\n"]),
)


@given(st.lists(_LINES, max_size=12), st.lists(st.integers(0, 2000), max_size=6))
def test_read_in_pieces_it_says_what_it_says_read_at_once(lines: list[bytes], cuts: list[int]) -> None:
    """Wherever the file happened to end when it was looked at, also in the middle of a line."""
    data = b"".join(lines)
    at_once = read_events(data, TranscriptCursor(), claude_code.from_line)
    events: tuple[ToolEvent, ...] = ()
    cursor, unreadable = TranscriptCursor(), 0
    for end in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        reading = read_events(data[cursor.offset : end], cursor, claude_code.from_line)
        cursor, unreadable = reading.cursor, unreadable + reading.unreadable
        events += reading.events
    assert (events, cursor, unreadable) == at_once
    assert cursor.offset == len(data)


@given(st.lists(_LINES, max_size=12))
def test_no_two_texts_of_one_transcript_have_one_key(lines: list[bytes]) -> None:
    """What a person or the model said twice counts twice."""
    events = [
        each
        for each in read_events(b"".join(lines), TranscriptCursor(), claude_code.from_line).events
        if each.what in (PROMPT, SAID)
    ]
    assert len({each.key for each in events}) == len(events)


@given(st.lists(_LINES, max_size=12), _TIMES)
def test_what_comes_after_a_time_is_left_for_later(lines: list[bytes], upto: str) -> None:
    """It stops at the first line that is later: nothing of before it is left out, and nothing is read twice."""
    data = b"".join(lines)
    first = read_events(data, TranscriptCursor(), claude_code.from_line, upto)
    rest = read_events(data[first.cursor.offset :], first.cursor, claude_code.from_line)
    assert all((each.at or "") <= upto for each in first.events)
    assert first.events + rest.events == read_events(data, TranscriptCursor(), claude_code.from_line).events


@given(st.lists(_TEXTS, min_size=1, max_size=6), st.integers(0, 6))
def test_what_a_hook_says_was_said_last_is_what_the_transcript_says_or_will_say(texts: list[str], lag: int) -> None:
    """The transcript may not have the last lines yet when the hook comes: in the end each text counts once."""
    lines = [_line("assistant", [{"type": "text", "text": text}], "2026-11-15T10:00:00.000Z", {}) for text in texts]
    there = read_events(b"".join(lines[: max(0, len(lines) - lag)]), TranscriptCursor(), claude_code.from_line)
    told = ToolEvent(SAID, texts[-1], counted=f"say:{digest(texts[-1])}")
    key = hook_key(told, there.cursor.counts, "record")
    whole = {each.key for each in read_events(b"".join(lines), TranscriptCursor(), claude_code.from_line).events}
    assert key in whole


def test_what_a_hook_gives_as_one_text_and_the_transcript_in_parts_counts_once() -> None:
    """One message may have several texts; the hook joins them."""
    lines = [_line("assistant", [{"type": "text", "text": text}], "2026-11-15T10:00:00.000Z", {}) for text in ("One.", "Two.")]
    counts = read_events(b"".join(lines), TranscriptCursor(), claude_code.from_line).cursor.counts
    for text in ("One.\n\nTwo.", "One.\nTwo.", "One.Two."):
        assert hook_key(ToolEvent(SAID, text, counted=f"say:{digest(text)}"), counts, "r") is None
    assert hook_key(ToolEvent(SAID, "Two.", counted=f"say:{digest('Two.')}"), counts, "r") is not None


def test_the_parts_of_a_message_are_one_text_also_where_they_are_read_one_by_one() -> None:
    """What is kept of a message between two looks is little, however many parts it has."""
    texts = [f"Part {number}." for number in range(20)]
    cursor = TranscriptCursor()
    for number, text in enumerate(texts):
        line = _line("assistant", [{"type": "text", "text": text}], "2026-11-15T10:00:00.000Z", {})
        cursor = read_events(line, cursor, claude_code.from_line).cursor
        if number == 2:
            joined = "\n\n".join(texts[:3])
            assert hook_key(ToolEvent(SAID, joined, counted=f"say:{digest(joined)}"), cursor.counts, "r") is None
    assert len(cursor.texts) < 10


def test_what_is_told_from_a_time_on_is_the_sessions_own() -> None:
    """A fork copies what was said before it began; what is of its first moment is its own, what has no time is not."""
    times = ("2026-11-15T10:00:00.999Z", "2026-11-15T10:00:01.000Z", "2026-11-15T10:00:01.001Z", "")
    data = b"".join(_line("assistant", [{"type": "text", "text": at or "none"}], at, {}) for at in times)
    reading = read_events(data, TranscriptCursor(), claude_code.from_line, since=times[1])
    assert [each.text for each in reading.events] == [times[1], times[2]]
    assert reading.cursor.offset == len(data)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda each: st.lists(each) | st.dictionaries(st.text(max_size=8), each),
)


@given(_JSON, st.sampled_from(["SessionStart", "PreToolUse", "PostToolUse", "Stop", "SubagentStop", "UserPromptSubmit", "New"]))
def test_no_field_of_a_hook_is_trusted_to_be_of_a_type(value: Any, name: str) -> None:
    """Any JSON in any field gives events, never an accident."""
    fields = (
        "prompt",
        "prompt_id",
        "tool_name",
        "tool_input",
        "tool_use_id",
        "tool_response",
        "agent_id",
        "source",
        "transcript_path",
        "cwd",
    )
    told = claude_code.from_hook({"session_id": "s", "hook_event_name": name, **dict.fromkeys(fields, value)})
    assert told.events
    json.dumps([each._asdict() for each in told.events])


@given(_JSON)
def test_what_is_kept_of_a_tools_input_is_small_and_the_same_again(value: Any) -> None:
    once = small({"a": value, "long": "x" * 10_000})
    assert small(once)["a"] == once["a"]
    assert len(once["long"]) < 5_000
