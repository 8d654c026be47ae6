"""Times and ages as HTML."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from clia.forge.rendering.texts import ago, stamp

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (86399, "23 h"),
        (86400, "1 d"),
        (2 * 86400, "2 d"),
        (30 * 86400, "1 mo"),
        (364 * 86400, "12 mo"),
        (365 * 86400, "1 y"),
        (-60, "in 1 min"),
        (-0.5, "0 s"),
    ],
)
def test_an_age_is_shown_in_its_largest_unit(seconds: float, text: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == text


def test_times_may_be_texts_numbers_or_datetimes() -> None:
    assert ago("2026-05-01T11:57:00Z", NOW.timestamp()) == "3 min"
    assert ago("2026-05-01T13:57:00+02:00", "2026-05-01T12:00:00") == "3 min"


def test_a_time_is_shown_in_utc_whatever_its_zone() -> None:
    expected = '<time datetime="2026-05-01T10:00:00Z">2026-05-01 10:00:00 UTC</time>'
    assert stamp("2026-05-01T12:00:00+02:00") == expected
    assert stamp(datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))) == expected
    assert stamp(NOW.timestamp() - 7200) == expected


def test_a_time_with_now_shows_its_age() -> None:
    assert stamp("2026-05-01T10:00:00Z", NOW) == '<time datetime="2026-05-01T10:00:00Z" title="2026-05-01 10:00:00 UTC">2 h</time>'


@pytest.mark.parametrize("when", ["", "<b>", "yesterday\u202e", 1e300, float("nan"), float("inf"), "0001-01-01T00:00:00+14:00"])
def test_an_invalid_time_is_shown_as_text(when: str | float) -> None:
    assert "<time" not in stamp(when)
    assert "<b>" not in stamp(when)
    assert "\u202e" not in stamp(when)
    assert ago(when, NOW) == ago(NOW, when) == ""
