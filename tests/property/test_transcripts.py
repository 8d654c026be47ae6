"""Laws of transcripts: reading in parts or at once gives the same events; hooks and transcripts have the same keys."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clia.capture.events import PROMPT, SAID, ToolEvent, digest, small
from clia.capture.tools import claude_code
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
def test_reading_in_parts_gives_the_same_events_as_reading_at_once(lines: list[bytes], cuts: list[int]) -> None:
    """The file may end anywhere when it is read, even inside a line."""
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
def test_no_two_texts_of_a_transcript_have_the_same_key(lines: list[bytes]) -> None:
    """A text that a person or the model repeats counts twice."""
    events = [
        event
        for event in read_events(b"".join(lines), TranscriptCursor(), claude_code.from_line).events
        if event.what in (PROMPT, SAID)
    ]
    assert len({event.key for event in events}) == len(events)


@given(st.lists(_LINES, max_size=12), _TIMES)
def test_events_after_a_time_are_read_later(lines: list[bytes], upto: str) -> None:
    """Reading stops at the first later line, so nothing is skipped or read twice."""
    data = b"".join(lines)
    first = read_events(data, TranscriptCursor(), claude_code.from_line, upto)
    rest = read_events(data[first.cursor.offset :], first.cursor, claude_code.from_line)
    assert all((event.at or "") <= upto for event in first.events)
    assert first.events + rest.events == read_events(data, TranscriptCursor(), claude_code.from_line).events


@given(st.lists(_TEXTS, min_size=1, max_size=6), st.integers(0, 6))
def test_the_last_text_of_a_hook_has_the_key_of_the_transcript(texts: list[str], lag: int) -> None:
    """The transcript may lack the last lines when the hook runs; in the end each text counts once."""
    lines = [_line("assistant", [{"type": "text", "text": text}], "2026-11-15T10:00:00.000Z", {}) for text in texts]
    reading = read_events(b"".join(lines[: max(0, len(lines) - lag)]), TranscriptCursor(), claude_code.from_line)
    hook_event = ToolEvent(SAID, texts[-1], counted=f"say:{digest(texts[-1])}")
    key = hook_key(hook_event, reading.cursor.counts, "record")
    keys = {event.key for event in read_events(b"".join(lines), TranscriptCursor(), claude_code.from_line).events}
    assert key in keys


def test_a_text_that_the_transcript_has_in_parts_counts_once() -> None:
    """One message may have several texts; the hook joins them."""
    lines = [_line("assistant", [{"type": "text", "text": text}], "2026-11-15T10:00:00.000Z", {}) for text in ("One.", "Two.")]
    counts = read_events(b"".join(lines), TranscriptCursor(), claude_code.from_line).cursor.counts
    for text in ("One.\n\nTwo.", "One.\nTwo.", "One.Two."):
        assert hook_key(ToolEvent(SAID, text, counted=f"say:{digest(text)}"), counts, "r") is None
    assert hook_key(ToolEvent(SAID, "Two.", counted=f"say:{digest('Two.')}"), counts, "r") is not None


def test_the_parts_of_a_message_are_one_text_even_if_read_one_by_one() -> None:
    """The state of a message between two reads is small, however many parts it has."""
    texts = [f"Part {number}." for number in range(20)]
    cursor = TranscriptCursor()
    for number, text in enumerate(texts):
        line = _line("assistant", [{"type": "text", "text": text}], "2026-11-15T10:00:00.000Z", {})
        cursor = read_events(line, cursor, claude_code.from_line).cursor
        if number == 2:
            joined = "\n\n".join(texts[:3])
            assert hook_key(ToolEvent(SAID, joined, counted=f"say:{digest(joined)}"), cursor.counts, "r") is None
    assert len(cursor.texts) < 10


def test_events_since_the_start_belong_to_the_session() -> None:
    """A fork copies earlier lines. Lines of its first moment are its own; lines without a time are not."""
    times = ("2026-11-15T10:00:00.999Z", "2026-11-15T10:00:01.000Z", "2026-11-15T10:00:01.001Z", "")
    data = b"".join(_line("assistant", [{"type": "text", "text": at or "none"}], at, {}) for at in times)
    reading = read_events(data, TranscriptCursor(), claude_code.from_line, since=times[1])
    assert [event.text for event in reading.events] == [times[1], times[2]]
    assert reading.cursor.offset == len(data)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner),
)


@given(_JSON, st.sampled_from(["SessionStart", "PreToolUse", "PostToolUse", "Stop", "SubagentStop", "UserPromptSubmit", "New"]))
def test_fields_of_a_hook_may_have_any_type(value: Any, name: str) -> None:
    """Any JSON in any field gives events and never an exception."""
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
    result = claude_code.from_hook({"session_id": "s", "hook_event_name": name, **dict.fromkeys(fields, value)})
    assert result.events
    json.dumps([event._asdict() for event in result.events])


@given(_JSON)
def test_the_recorded_input_of_a_tool_is_small_and_deterministic(value: Any) -> None:
    shortened = small({"a": value, "long": "x" * 10_000})
    assert small(shortened)["a"] == shortened["a"]
    assert len(shortened["long"]) < 5_000
