"""Reading reflogs, also parts of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.git.reflogs import is_creation, read_reflog

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = "1" * 40, "2" * 40
LINE = f"{OLD} {NEW} A. U. Thor <a> b <thor@example.com> 1790000000 -0330\tcommit: subject\n"


@pytest.mark.parametrize(
    ("why", "created", "replayed"),
    [
        ("commit: x", True, False),
        ("commit (initial): x", True, False),
        ("commit (amend): x", True, False),
        ("commit (merge): x", True, False),
        ("commit (cherry-pick): x", True, True),
        ("cherry-pick: x", True, True),
        ("revert: x", True, False),
        ("rebase (pick): x", True, True),
        ("rebase (continue): x", True, True),
        ("rebase (start): checkout main", False, True),
        ("rebase (finish): returning to refs/heads/main", False, True),
        ("rebase: fast-forward", False, True),
        ("pull --rebase (pick): x", True, True),
        ("pull: Fast-forward", False, True),
        ("merge topic: Merge made by the 'ort' strategy.", True, False),
        ("merge topic: Fast-forward", False, False),
        ("checkout: moving from main to topic", False, False),
        ("reset: moving to HEAD~1", False, False),
        ("", False, False),
    ],
)
def test_the_reason_says_whether_a_commit_was_created_and_whether_it_repeats_another(
    tmp_path: Path, why: str, created: bool, replayed: bool
) -> None:
    log = tmp_path / "HEAD"
    log.write_text(LINE.replace("commit: subject", why))
    (entry,) = read_reflog(str(log))
    assert (entry.old, entry.new, entry.at, entry.why) == (OLD, NEW, 1790000000, why)
    assert (entry.created, entry.replayed) == (created, replayed)
    assert is_creation(why) is created


def test_a_part_has_only_its_entries_and_a_rewritten_log_has_none(tmp_path: Path) -> None:
    log = tmp_path / "HEAD"
    log.write_text(LINE * 3)
    assert len(read_reflog(str(log), len(LINE), 2 * len(LINE))) == 1
    assert len(read_reflog(str(log), len(LINE))) == 2
    assert read_reflog(str(log), len(LINE) - 7, 2 * len(LINE)) == []
    assert read_reflog(str(log), 5 * len(LINE)) == []
    assert read_reflog(str(tmp_path / "missing")) == []


def test_a_line_that_is_no_entry_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "HEAD"
    log.write_bytes(b"\xff\0 garbage\n" + LINE.encode() + LINE.encode()[:50])
    assert len(read_reflog(str(log))) == 1
