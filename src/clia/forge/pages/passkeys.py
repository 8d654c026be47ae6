"""Passkeys: the page on which a person adds and removes them, and the login with one.

Invariant: creating and using a passkey needs a script, because browsers offer it to scripts only; everything else works without.
Options for the browser contain no secret. The server checks what the browser answers, and goes by nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clia.errors import CliaError, InvalidInput
from clia.forge.auth import CSRF_FIELD, check_csrf, require
from clia.forge.pages.common import first, forge_of, identity_of, read_form, redirect, render_bare
from clia.forge.pages.login import check_own, local_path, logged_in
from clia.forge.problems import PROBLEM, problem, status_of
from clia.forge.proofs import passkeys_of, place_of
from clia.trust.passkeys import offered_algorithms
from clia.trust.policy import OWNER
from clia.trust.statements import DECIDE, read_statement
from clia.users.passkeys import CONFIRM, ENROL, LOGIN, creation_options, request_options
from clia.verbs import set_channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from clia.forge.forge import Forge, Site
    from clia.forge.pages.common import Posted
    from clia.trust.passkeys import PasskeyPlace
    from clia.trust.statements import EnrolledKey
    from clia.users.passkeys import StoredPasskey, UserPasskey
    from clia.users.service import User, WebSession

_LEAST = "viewer"


def passkey_routes() -> list[Route]:
    return [
        Route("/login/passkey", _login_options, methods=["GET"], name="passkey:login:options"),
        Route("/login/passkey", _log_in, methods=["POST"], name="passkey:login"),
        Route("/passkeys", _show, methods=["GET"], name="passkeys"),
        Route("/passkeys", _add, methods=["POST"], name="passkey:add"),
        Route("/passkeys/options", _add_options, methods=["POST"], name="passkey:options"),
        Route("/passkeys/{passkey}/remove", _remove, methods=["POST"], name="passkey:remove"),
        Route("/passkeys/{passkey}/enrol", _enrol, methods=["POST"], name="passkey:enrol"),
        Route("/passkeys/{passkey}/enrol/options", _enrol_options, methods=["POST"], name="passkey:enrol:options"),
    ]


def _needed_place(forge: Forge) -> PasskeyPlace:
    place = place_of(forge)
    if place is None:
        hints = ["serve the forge under a host name: clia serve --host-name NAME, behind a proxy with TLS"]
        message = "browsers allow passkeys only under a host name, with TLS or on this machine"
        raise InvalidInput(message, code="no-passkeys", hints=hints)
    return place


# Login


def _login_options(request: Request) -> Response:
    forge = forge_of(request)
    try:
        place = _needed_place(forge)
    except CliaError as err:
        return _as_problem(err)
    return JSONResponse({"publicKey": request_options(passkeys_of(forge).challenge(LOGIN), place.rp_id)})


async def _log_in(request: Request) -> Response:
    posted = await read_form(request)
    check_own(request)
    forge, back = forge_of(request), local_path(first(posted, "next"))

    def session() -> WebSession:
        return forge.users.make_session(passkeys_of(forge).log_in(first(posted, "_response")))

    try:
        return logged_in(forge, await run_in_threadpool(session), back)
    except CliaError as err:
        return render_bare(request, "login.html", 403, secret="", next=back, problem=err)


# The page


def _show(request: Request) -> Response:
    return _page(request, require(identity_of(request), _LEAST))


def _page(request: Request, user: User, error: CliaError | None = None) -> Response:
    forge = forge_of(request)
    keys, place = passkeys_of(forge).of(user.name), place_of(forge)
    status = 200 if error is None else status_of(error)
    context = {"keys": keys, "here": None if place is None else place.rp_id, "problem": error}
    return render_bare(request, "passkeys.html", status, enrolments=_enrolments(forge, user), **context)


async def _add_options(request: Request) -> Response:
    """What the browser needs to create a passkey and, if the user has one, to confirm that."""
    user = await _checked(request)
    forge = forge_of(request)
    try:
        return JSONResponse(await run_in_threadpool(partial(_options, forge, user)))
    except CliaError as err:
        return _as_problem(err)


def _options(forge: Forge, user: User) -> dict[str, object]:
    place, store = _needed_place(forge), passkeys_of(forge)
    everywhere, enrolled = store.of(user.name), store.of(user.name, place.rp_id)
    create = creation_options(store.challenge(ENROL, user.name), place, user, enrolled, offered_algorithms())
    confirm = request_options(store.challenge(CONFIRM, user.name), place.rp_id, enrolled) if everywhere else None
    return {"publicKey": create, "confirm": confirm}


async def _add(request: Request) -> Response:
    user = await _checked(request)
    posted, forge = await read_form(request), forge_of(request)

    def add() -> None:
        name, response, confirmation = (first(posted, field) for field in ("name", "_response", "_confirm"))
        added = passkeys_of(forge).add(user, name, response, _needed_place(forge), confirmation)
        _enrol_first(forge, user, added)

    return await _done(request, user, add)


async def _remove(request: Request) -> Response:
    user = await _checked(request)
    passkey = request.path_params["passkey"]
    return await _done(request, user, lambda: passkeys_of(forge_of(request)).remove(user.name, passkey))


# Enrolment: which keys of people a space accepts


class KeyEnrolment(NamedTuple):
    """A passkey and a space that signs: whether it is enrolled there, and whether the user of the page can enrol it."""

    space: str  # the name of the space in the forge
    user: str
    key: StoredPasskey
    enrolled: bool
    can_enrol: bool


def _enrolments(forge: Forge, user: User) -> list[KeyEnrolment]:
    """The user's passkeys in each space that signs; for an administrator, also those of others that are not enrolled."""
    store, rows = passkeys_of(forge), []
    names = [user.name, *(info.user.name for info in forge.users.all() if info.user.name != user.name)]
    for name in names if user.may("admin") else [user.name]:
        for key in store.of(name):
            for site in forge.sites.values():
                is_enrolled = site.space.trust.enrolled(key.info.fingerprint) is not None
                if site.space.trust.is_signing() and (name == user.name or not is_enrolled):
                    can_enrol = not is_enrolled and user.may("admin")
                    rows.append(KeyEnrolment(site.name, name, key, is_enrolled, can_enrol))
    return rows


def _enrol_first(forge: Forge, user: User, added: UserPasskey) -> None:
    """Enrol the passkey of an administrator where nobody has enrolled a key yet. The machine vouches for that."""
    key = passkeys_of(forge).by_id(user.name, added.id)
    for site in forge.sites.values():
        trust = site.space.trust
        if user.may("admin") and trust.is_signing() and not trust.has_people():
            trust.enrol_key(key.passkey.enrolled(user.by, (OWNER,)), user.by)


async def _enrol_options(request: Request) -> Response:
    """What the browser needs to sign that a key is enrolled."""
    user = await _checked(request)
    try:
        posted = await read_form(request)
        return JSONResponse(await run_in_threadpool(partial(_enrolment_statement, request, user, posted)))
    except CliaError as err:
        return _as_problem(err)


def _enrolment_statement(request: Request, user: User, posted: Posted) -> dict[str, object]:
    forge = forge_of(request)
    site, key = _enrolment(request, user, posted)
    place, trust = _needed_place(forge), site.space.trust
    own = [mine for mine in passkeys_of(forge).of(user.name, place.rp_id) if trust.enrolled(mine.info.fingerprint) is not None]
    if not own:
        hints = ["an owner of the space enrols it: clia key list shows the owners"]
        raise InvalidInput("you have no enrolled passkey to sign this with", code="no-passkeys", hints=hints)
    statement = trust.state_enrolment(key, user.by)
    options = request_options(statement.challenge(), place.rp_id, own)
    return {"statement": statement.data().decode("utf-8"), "publicKey": options}


def _enrolment(request: Request, user: User, posted: Posted) -> tuple[Site, EnrolledKey]:
    """The space and the key of a form."""
    user.require("admin")
    forge, owner = forge_of(request), first(posted, "user")
    site = forge.site(first(posted, "space"))
    stored = passkeys_of(forge).by_id(owner, request.path_params["passkey"])
    account = forge.users.get(owner)
    roles = (OWNER,) if account is not None and account.may("admin") else (DECIDE,)
    return site, stored.passkey.enrolled(stored.info.owner, roles)


async def _enrol(request: Request) -> Response:
    user = await _checked(request)
    posted = await read_form(request)

    def enrol() -> None:
        site, key = _enrolment(request, user, posted)
        if not site.space.trust.has_people():
            site.space.trust.enrol_key(key, user.by)
            return
        statement = read_statement(first(posted, "_statement"))
        proof = passkeys_of(forge_of(request)).sign(user.name, first(posted, "_assertion"), statement)
        site.space.trust.enrol_key(key, user.by, (statement, proof))

    return await _done(request, user, enrol)


async def _done(request: Request, user: User, act: Callable[[], None]) -> Response:
    try:
        await run_in_threadpool(act)
    except CliaError as err:
        return await run_in_threadpool(_page, request, user, err)
    return redirect("/passkeys")


async def _checked(request: Request) -> User:
    """The user of a form, whose CSRF token is right. Programs have no passkeys: a token is not a person."""
    posted = await read_form(request)
    identity = identity_of(request)
    check_csrf(identity, request.headers, first(posted, CSRF_FIELD))
    set_channel("forge")
    user = require(identity, _LEAST)
    if not identity.by_cookie or user.acting is not None:
        raise InvalidInput("passkeys are for people, who are logged in with a browser", code="no-passkeys")
    return user


def _as_problem(err: CliaError) -> Response:
    return JSONResponse(problem(err), status_code=status_of(err), media_type=PROBLEM)
