"""``clia backup`` and ``clia restore``."""

from __future__ import annotations

from clia.cli.command import PATH, STORE, Answer, arg, command, flag, opt
from clia.cli.output import counted, one_line, write
from clia.cli.rendering import progress_bar, show_hints

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.facade.backup import Backup
    from clia.facade.restore import Restored
    from clia.facade.settings import Settings


@command("backup", store=STORE)
def backup(
    settings: Settings,
    json_output: bool,
    directory: str = arg("DIR", "a new or empty directory, outside of the repository"),
    check: bool = flag("verify the backup in DIR instead of creating one"),
    path: str = PATH,
) -> Answer[Backup]:
    """Back up git and the store at one moment, while agents work.

    A backup also has the keys and the configuration, and only its owner can read it. It does not have files that are not committed.
    """
    from clia.facade.backup import check_backup
    from clia.facade.opening import open_space

    if check:
        backup = check_backup(directory)
    else:
        with open_space(path, settings=settings) as space, progress_bar("Backing up", hidden=json_output) as progress:
            backup = space.local.back_up(directory, progress)
    return Answer(backup, lambda: _show_backup(backup, checked=check))


def _show_backup(made: Backup, *, checked: bool) -> None:
    from rich.filesize import decimal

    title = "verified the backup" if checked else "backed up"
    write(f"{title} of {made.at} in {one_line(made.path)}\n" if checked else f"{title} {made.space} in {one_line(made.path)}\n")
    write(f"{counted(made.agents, 'agent')}, {counted(made.refs, 'ref')}, {decimal(made.bytes)}\n")


@command("restore")
def restore(
    settings: Settings,
    json_output: bool,
    directory: str = arg("BACKUP", "directory that clia backup wrote"),
    place: str = arg("DIR", "a new or empty directory, or a new clone (default: current directory)", nargs="?", default="."),
    store: str | None = opt("URL", "postgresql://… for a store on a server; saved in git's configuration"),
    replace: bool = flag("replace the git directory of DIR also if it has a space, or commits that the backup lacks"),
) -> Answer[Restored]:
    """Restore a backup of a space.

    A replaced git directory is moved to .git/replaced, and files in DIR stay as they are.
    """
    from clia.cli.spaces import check_store
    from clia.facade.restore import restore as restore_backup

    if store is not None:
        check_store(store)
    with progress_bar("Restoring", hidden=json_output) as progress:
        restored = restore_backup(directory, place, settings, replace=replace, keep_store=bool(store), progress=progress)
    return Answer(restored, lambda: _show_restored(restored))


def _show_restored(restored: Restored) -> None:
    write(f"restored {restored.space}, as of {restored.at}, in {one_line(restored.path)}\n")
    write(f"{counted(restored.agents, 'agent')}; store: {one_line(restored.store)}\n")
    if restored.replaced:
        write(f"the former git directory is {one_line(restored.replaced)}\n")
    for note in restored.notes:
        write(f"warning: {one_line(note)}\n")
    show_hints(["if the original is still in use, stop it first, or use this copy read-only", "check it with: clia verify"])
