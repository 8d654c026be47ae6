"""libgit2's many ways to fail, as errors of ours."""

from __future__ import annotations

import errno
import re
from contextlib import contextmanager
from functools import wraps

from clia.errors import CliaError, GitError, NoSuchObject

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    Made = TypeVar("Made")


_OBJECT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
NOT_WRITTEN = "the disk took nothing; it may be full"
_SAME_DRAFT = "File exists"
_VANISHED = "No such file or directory"
_TRIES = 10
_LASTING = ("permission denied", "read-only file system", "no space left", "quota exceeded", "operation not permitted")


def message_of(err: BaseException) -> str:
    """What an exception says, without the quotes that a KeyError puts around it."""
    return str(err.args[0]) if err.args else type(err).__name__


def is_lock_failure(err: BaseException) -> bool:
    """Whether someone else holds the file right now: worth another try."""
    text = message_of(err).lower()
    if any(reason in text for reason in _LASTING):
        return False  # no lock can be taken there, whoever holds it
    return "lock" in text or (isinstance(err, OSError) and err.errno in (errno.EEXIST, errno.EAGAIN, errno.EBUSY))


def git_error(doing: str, err: BaseException, **fields: str) -> GitError:
    text = message_of(err)
    hints = ["free some space and try again; nothing was recorded"] if "no space left" in text.lower() else []
    return GitError(f"{doing}: {text}", hints=hints, fields={"reason": text, **fields})


@contextmanager
def reading(cid: str) -> Iterator[None]:
    """Around every read of an object."""
    import pygit2

    try:
        yield
    except CliaError:
        raise
    except KeyError:
        raise NoSuchObject(f"there is no object {cid}", fields={"cid": cid}) from None
    except (pygit2.GitError, OSError, ValueError) as err:
        if isinstance(err, ValueError) and not _OBJECT_ID.fullmatch(cid):
            raise NoSuchObject(f"{cid!r} is no id of an object", fields={"cid": cid}) from None
        reason = message_of(err)
        raise GitError(
            f"the object {cid} cannot be read: {reason}",
            code="corrupt-object",
            hints=["git fsck tells what is damaged; a clone or backup may have the object whole"],
            fields={"cid": cid, "reason": reason},
        ) from None


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Around every write of an object. A KeyError here is a folder that vanished, never an object that is missing."""
    import pygit2

    try:
        yield
    except CliaError:
        raise
    except (pygit2.GitError, OSError, KeyError, ValueError) as err:
        raise git_error(f"writing {what} failed", err) from None


def tried_again(write: Callable[P, Made]) -> Callable[P, Made]:
    """For what writes objects: ``git gc`` may remove a folder that is empty just before a file comes into it; and processes forked
    from one that had libgit2 loaded make up the same names for their drafts."""

    @wraps(write)
    def attempt(*words: P.args, **more: P.kwargs) -> Made:
        for _ in range(_TRIES - 1):
            try:
                return write(*words, **more)
            except GitError as err:
                if not any(reason in str(err.fields.get("reason")) for reason in (_VANISHED, NOT_WRITTEN, _SAME_DRAFT)):
                    raise
        return write(*words, **more)

    return attempt
