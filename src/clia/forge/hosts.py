"""The host names under which the forge answers.

Browsers send a cookie to every port of a host. So pages and logins exist under one host name, which no other server on the machine
uses; programs, which send tokens, may also use the loopback names. Invariant: a request that names another host is refused, so that
a foreign domain that resolves to this machine (DNS rebinding) reaches nothing.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9a-f:.]{2,45})\]|(?P<name>[a-z0-9_](?:[a-z0-9._-]{0,252}[a-z0-9_])?\.?))(?::[0-9]{1,5})?", re.IGNORECASE
)
_SHORT_ID = 10
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*", re.IGNORECASE)


class UnknownHost(InvalidInput):
    """The request names a host that is not the forge's."""

    code = "unknown-host"


class HostNames(NamedTuple):
    """The hosts of a forge."""

    own: str = ""  # host name of the forge's address; empty: pages are served under the loopback names
    by_ip: bool = False  # whether pages are also served under this machine's IP addresses, to other machines

    def serves_pages(self, host_headers: Sequence[str]) -> bool:
        """Whether pages and their cookies belong to the host that a request names; False: only programs may use it.

        Raises ``UnknownHost`` for a host that is not the forge's.
        """
        name = _name_in(host_headers)
        if name == self.own:
            return True
        if name is not None and _is_loopback(name):
            return not self.own
        if name is not None and _is_ip(name):
            return self.by_ip  # no foreign domain can be an IP address
        shown = ", ".join(host_headers)[:200] or "none"
        hints = [f"the forge's host name is {self.own}"] if self.own else []
        hints.append("set another one with clia serve --host-name NAME or, behind a proxy, address in the [forge] configuration")
        raise UnknownHost(f"the forge does not answer for the host {shown!r}", hints=hints, fields={"field": "Host", "host": shown})


def own_name(space_id: str) -> str:
    """The host name of a forge on this machine, by its home space. Browsers resolve every name below localhost to this machine."""
    return f"clia-{space_id.replace('-', '')[:_SHORT_ID]}.localhost"


def host_of(address: str) -> str:
    """The host name in an address, normalized."""
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return ""


def checked_host_name(name: str) -> str:
    """A host name for browsers; ``InvalidInput`` if it is none, or an IP address."""
    if not _NAME.fullmatch(name) or _is_ip(name):
        hints = ["such as forge.example.org; browsers allow passkeys only under a host name"]
        message = f"--host-name takes a host name without scheme and port, not {name!r}"
        raise InvalidInput(message, code="usage", hints=hints, fields={"field": "host_name"})
    return name.lower()


def is_loopback(host: str) -> bool:
    """Whether a bound address can be reached from this machine only."""
    return _is_loopback(host.lower())


def _name_in(headers: Sequence[str]) -> str | None:
    """The host that a request names, normalized; None if it names none, or several."""
    match = _HOST.fullmatch(headers[0].strip()) if len(headers) == 1 else None
    return None if match is None else (match["v6"] or match["name"]).lower().rstrip(".")


def _is_loopback(name: str) -> bool:
    return name == "localhost" or (_is_ip(name) and ip_address(name).is_loopback)


def _is_ip(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
