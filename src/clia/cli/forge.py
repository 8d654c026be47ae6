"""The forge and its users: serve, mcp, user."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from typing import NamedTuple

from clia import __version__
from clia.cli.command import CONFIG, IN_SPACE, Answer, arg, command, flag, many, opt
from clia.cli.inputs import invalid_option, positive, require_person
from clia.cli.output import console, counted, emit_json, one_line, write
from clia.cli.rendering import minute, show_table
from clia.errors import InvalidInput, NotFound, require_extra
from clia.users.fields import ROLES, VIEWER
from clia.users.service import users_of
from clia.values.records import EMBED, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Annotated

    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.forge.forge import Forge, LoadedApp, Site
    from clia.forge.server import ServeBanner
    from clia.users.passkeys import UserPasskey
    from clia.users.service import TokenInfo, User, UserInfo

USER = arg("NAME", "user name")
_DEFAULT_ADDRESS = "http://127.0.0.1:8337"


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise InvalidInput(f"--port takes a number from 0 to 65535, not {text!r}", code="usage", fields={"field": "port"})
    return int(text)


@command("serve", config=CONFIG, **IN_SPACE)
def serve(
    settings: Settings,
    path: str,
    json_output: bool,
    host: str = opt("HOST", "address to bind (default: 127.0.0.1)", default="127.0.0.1"),
    port: int = opt("PORT", "port (default: 8337; 0: a free one)", type=_port, default=8337),
    directories: list[str] = many("DIR", "space to serve (repeatable; default: the one at --path)", "--space"),
    user: str | None = opt("NAME", "user of the login link (default: the first administrator)"),
    host_name: str | None = opt("NAME", "host name for browsers (default: as configured, else clia-ID.localhost on this machine)"),
    socket: str | None = opt("PATH", "Unix socket to listen on for a proxy, instead of a port"),
    quiet: bool = flag("no access log", "-q --quiet"),
) -> Annotated[int, ServeBanner]:
    """Run the forge: the web pages where people watch and answer agents, and the API.

    Standard output carries the address and the login link; the access log goes to standard error.
    """
    require_extra("forge")
    require_person("a person serves the forge; ask with: clia ask AGENT QUESTION")
    from clia.forge.binding import ServeOptions
    from clia.forge.forge import ExtraApp
    from clia.forge.server import log_to
    from clia.forge.server import serve as run_forge  # loads the web framework: 0.3 s

    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if quiet:
        handler.setLevel(logging.WARNING)
    log_to(handler)
    settings = settings._replace(prove=None)  # users prove their own answers; the keys of who started the forge are not theirs
    options = ServeOptions(tuple(directories) or (path,), host, port, user, host_name, socket)

    def extras(forge: Forge) -> Sequence[ExtraApp]:
        return [ExtraApp("mcp", ["/mcp", "/mcp/{space}"], lambda: _mcp_endpoint(forge))]

    run_forge(
        options, settings, os.environ, lambda served: _show_served(served, host if socket is None else None, json_output), extras
    )
    return 0


def _mcp_endpoint(forge: Forge) -> LoadedApp:
    """The MCP endpoint. The web and MCP packages do not import each other, so it is added here."""
    from clia.forge.forge import LoadedApp
    from clia.identities.service import RelativePaths
    from clia.mcp.calls import SpaceContext, WaitSlots
    from clia.mcp.http import Endpoint, EndpointOptions  # loads the MCP package: 1 s, on the first request

    def context(site: Site) -> SpaceContext:
        paths, address = RelativePaths(site.path), f"{forge.options.address}/s/{site.name}"
        return SpaceContext(site.path, lambda: site.space, address=lambda _: address, paths=paths, waits=waits)

    options, waits = forge.options, WaitSlots()
    endpoint_options = EndpointOptions(options.address, forge.secret, options.body_max, __version__, forge.users.get)
    endpoint = Endpoint({site.name: context(site) for site in forge.sites.values()}, endpoint_options)
    return LoadedApp(endpoint, endpoint.life, endpoint.stopping)


def _show_served(served: ServeBanner, host: str | None, json_output: bool) -> None:
    if json_output:
        emit_json(served)
    else:
        write(f"serving {one_line(', '.join(served.spaces))} at {served.address}\n")
        write(f"log in as {served.user}: {served.link}\n")
        write("the link works once; press Ctrl-C to stop the forge\n")
        if host not in (None, "127.0.0.1", "localhost", "::1") and not served.address.startswith("https://"):
            warning = "warning: others on the network can reach the forge, and without TLS they can read the traffic"
            console(stderr=True).print(warning, style="yellow")
    sys.stdout.flush()


@command("mcp", config=CONFIG, **IN_SPACE)
def mcp(
    settings: Settings,
    path: str,
    agent: str | None = opt(
        "NAME", "agent that the server acts as (default: CLIA_AGENT, else the agent of the checkout, else the calling session's)"
    ),
    forge: str | None = opt(
        "URL", "forge for links to its inbox (default: CLIA_FORGE, else the local forge that serves the space)"
    ),
    tools: str = opt(None, "list the 12 core tools (default) or all of them", choices=("core", "all"), default="core"),
) -> int:
    """Serve this space over the Model Context Protocol on standard input and output."""
    require_extra("mcp")
    address = forge or os.environ.get("CLIA_FORGE") or None
    if address is not None and not re.match(r"https?://[^/\s]+", address):
        message = f"--forge takes an address that starts with http:// or https://, not {address!r}"
        hints = [f"clia serve prints it: {_DEFAULT_ADDRESS}"]
        raise InvalidInput(message, code="usage", hints=hints, fields={"field": "forge"})
    agent = agent or os.environ.get("CLIA_AGENT") or None
    from clia.trust.agent_keys import AgentKeys

    # Tools are called by models, not by people. A client could fill in a form itself, so no person's key signs its answers.
    settings = settings._replace(agent=agent or "mcp-client", prove=None, agent_keys=AgentKeys(certify=True))
    path = os.path.abspath(path)
    if not os.path.isdir(path):
        raise InvalidInput(f"{path} is not a directory", code="not-a-directory", fields={"path": path})
    if agent is not None:
        from clia.values.refs import check_name

        check_name(agent)
    from clia.mcp.startup_cache import EarlyAnswers, KeptAnswers, answers_directory, installed_code

    # A thread waits for the next line and would keep the process alive; everything here can be interrupted safely.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    messages = EarlyAnswers(
        KeptAnswers(answers_directory(os.environ), f"{__version__} {installed_code()}{' all' if tools == 'all' else ''}")
    )
    from clia.capture.ingest import ingest
    from clia.facade.opening import open_space
    from clia.mcp.calls import SpaceContext
    from clia.mcp.server import serve as run_server  # loads the MCP package: 0.5 s, while the first requests are answered

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    context = SpaceContext(
        path,
        lambda: open_space(path, settings=settings),
        agent=agent,
        session=os.environ.get("CLAUDE_CODE_SESSION_ID", ""),
        refresh=lambda space: ingest(space, settings, os.environ),
        address=lambda space: site_address(address, space),
        all_tools=tools == "all",
    )
    run_server(context, __version__, messages)
    return 0


def site_address(forge: str | None, space: Space) -> str | None:
    """The address of the space in a forge, which is named after its directory; without a forge, the local one."""
    if forge is None:
        from clia.forge.address_file import address_of

        return address_of(space.home)
    forge = forge.rstrip("/")
    if "/s/" in forge:
        return forge
    common = os.path.dirname(space.home)
    root = os.path.dirname(common) if os.path.basename(common) == ".git" else common
    name = re.sub(r"[^a-z0-9]+", "-", os.path.basename(root).lower()).strip("-")[:60] or "space"
    return f"{forge}/s/{name}"


@command("user add")
def user_add(
    space: Space,
    user: str = arg("NAME", "user name, such as ada-lovelace"),
    role: str = opt(
        None, "may read, record and ask as an agent, also answer, or also manage (default: viewer)", choices=ROLES, default=VIEWER
    ),
    display: str = opt("DISPLAY", "display name, recorded in decisions", "--name", default=""),
    email: str = opt("ADDRESS", "e-mail address, recorded in decisions", default=""),
    agents: list[str] = many("NAME", "agent that a user with the role agent acts for (repeatable)", "--agent"),
) -> Answer[User]:
    """Add a user of the forge."""
    added = users_of(space).add(user, role, display, email, agents=agents)
    return Answer(added, f"added {added.name} as {added.role}; {_recorded(added)}")


def _recorded(user: User) -> str:
    return f"decisions are recorded as {user.by}" if user.acting is None else f"acts for {user.acting}"


@command("user list")
def user_list(space: Space) -> Answer[list[UserInfo]]:
    """List users and their tokens."""
    users = users_of(space).all()
    if not users:
        return Answer([], "no users yet; add one with: clia user add NAME")
    return Answer(users, lambda: _show_users(users))


def _show_users(users: Sequence[UserInfo]) -> None:
    people = [(user.name, user.role, user.display, user.email, minute(created), len(tokens)) for user, created, tokens in users]
    show_table(("user", "role", "name", "e-mail", "since (UTC)", "tokens"), people)
    rows = []
    for user, _, tokens in users:
        for token in tokens:
            last_used, end = (minute(time) or "never" for time in (token.last_used_at, token.expires_at))
            rows.append((user.name, token.id, token.label, token.role, minute(token.created_at), last_used, end))
    if rows:
        console().print()
        show_table(("user", "token", "label", "role", "since (UTC)", "last used", "expires"), rows)


@command("user change")
def user_change(
    space: Space,
    user: str = USER,
    role: str | None = opt(None, "may read, also answer, or also manage", choices=ROLES),
    display: str | None = opt("DISPLAY", "display name, recorded in decisions", "--name"),
    email: str | None = opt("ADDRESS", "e-mail address, recorded in decisions"),
    agents: list[str] = many("NAME", "agent that a user with the role agent acts for (repeatable; replaces all)", "--agent"),
) -> Answer[User]:
    """Change the role, name or address of a user.

    The change applies at once to every token and login of the user.
    """
    if role is None and display is None and email is None and not agents:
        raise InvalidInput("give --role, --name, --email or --agent", code="usage", hints=["clia user change --help"])
    changed = users_of(space).update(user, role=role, display=display, email=email, agents=agents or None)
    return Answer(changed, f"{changed.name} is now {changed.role}; {_recorded(changed)}")


class LoginLink(NamedTuple):
    user: str  # the user
    link: str  # the link, which works once
    minutes: int  # minutes until it expires


@command("user link")
def user_link(
    space: Space,
    user: str = USER,
    minutes: int = opt("N", "minutes until the link expires (default: 15)", type=positive, default=15),
    address: str | None = opt("URL", "address of the forge (default: as configured, else the one on this machine)"),
) -> Answer[LoginLink]:
    """Print a link that logs a user in, once.

    Standard output carries only the link.
    """
    base = address or space.local.config.forge.address or _local_forge(space)
    link = f"{base.rstrip('/')}/login?key={users_of(space).login_link(user, minutes)}"

    def show() -> None:
        write(f"{link}\n")
        write(f"valid once, expires in {counted(minutes, 'minute')}\n", sys.stderr)

    return Answer(LoginLink(user, link, minutes), show)


def _local_forge(space: Space) -> str:
    """The address of the forge that serves the space on this machine, else the one that it would have."""
    from clia.forge.address_file import address_of
    from clia.forge.hosts import own_name

    served = address_of(space.home)
    return served.rpartition("/s/")[0] if served is not None else f"http://{own_name(space.id)}:8337"


@json_form(info=EMBED)
class NewToken(NamedTuple):
    """A new token."""

    token: str  # the secret, which is not shown again: only its hash is stored
    user: str  # the user
    info: TokenInfo


class RevokedToken(NamedTuple):
    """A token that was revoked."""

    user: str  # the user
    id: str  # token id
    revoked: bool  # true


@command("user token")
def user_token(
    space: Space,
    user: str = USER,
    label: str = opt("TEXT", "purpose of the token", default=""),
    role: str | None = opt(None, "role of the token, at most the user's (default: the same)", choices=ROLES),
    days: int | None = opt("N", "days until the token expires (default: never)", type=positive),
    revoke: str | None = opt("ID", "revoke this token instead; clia user list shows the ids"),
) -> Answer[NewToken | RevokedToken]:
    """Create an API token for a user, or revoke one.

    Standard output carries only the secret, which is not shown again.
    """
    users = users_of(space)
    if revoke is not None:
        if label or role or days:
            raise invalid_option("--revoke excludes --label, --role and --days")
        users.revoke_token(user, revoke)
        return Answer(RevokedToken(user, revoke, True), f"revoked token {revoke} of {user}")
    secret, token = users.make_token(user, label, role, days)

    def show() -> None:
        write(f"{secret}\n")
        until = f"until {token.expires_at}" if token.expires_at else "until it is revoked"
        write(f"token {token.id} of {user}, {token.role}, valid {until}; it is not shown again\n", sys.stderr)

    return Answer(NewToken(secret, user, token), show)


class RemovedUser(NamedTuple):
    user: str  # the user
    removed: bool  # true


@command("user remove")
def user_remove(space: Space, user: str = USER, force: bool = flag("remove even the last administrator")) -> Answer[RemovedUser]:
    """Remove a user with all tokens and logins.

    The user's decisions stay.
    """
    users_of(space).remove(user, force=force)
    return Answer(RemovedUser(user, True), f"removed {user}, with all tokens and logins")


@command("user passkey")
def user_passkey(
    space: Space,
    user: str = USER,
    remove: str | None = opt("ID", "remove this passkey, also if it is the last one"),
) -> Answer[list[UserPasskey]]:
    """List the passkeys of a user, or remove one.

    People add their passkeys in the forge. A removed passkey stays enrolled in the space until it is revoked.
    """
    from clia.users.passkeys import passkeys_of_space

    store = passkeys_of_space(space)
    if users_of(space).get(user) is None:
        hints = ["clia user list shows the users"]
        raise NotFound(f"user {user!r} not found", code="no-such-user", hints=hints, fields={"user": user})
    if remove is not None:
        key = store.by_id(user, remove).info
        store.remove(user, remove, last=True)
        left = [stored.info for stored in store.of(user)]
        text = f"removed passkey {key.id} of {user}; where it is enrolled, revoke it: clia key revoke {key.fingerprint}"
        return Answer(left, text)
    passkeys = [stored.info for stored in store.of(user)]
    if not passkeys:
        return Answer([], f"{user} has no passkey; people add theirs in the forge, on the page Passkeys")
    rows = [(key.id, key.name, key.host, key.fingerprint, minute(key.created_at), minute(key.last_used_at)) for key in passkeys]
    return Answer(passkeys, lambda: show_table(("passkey", "name", "host name", "fingerprint", "since (UTC)", "last used"), rows))
