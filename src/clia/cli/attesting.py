"""``clia attest``: attestations about commits, for programs that do not know clia."""

from __future__ import annotations

from typing import Any, NamedTuple

from clia import __version__
from clia.cli.command import PATH, STORE, Answer, arg, command, flag, opt
from clia.cli.inputs import invalid_option, read_source
from clia.cli.output import counted, one_line, write
from clia.cli.provenance import provenance
from clia.cli.rendering import short
from clia.errors import FileError, InvalidInput
from clia.provenance.verifying import CheckedAttestation  # noqa: TC001  # the annotations of records are read at run time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.provenance.service import ProvenanceService

IN_TOTO, AGENT_TRACE, SLSA_SOURCE = "in-toto", "agent-trace", "slsa-source"
FORMATS = (IN_TOTO, AGENT_TRACE, SLSA_SOURCE)
_VERIFY = "verify"


class Attested(NamedTuple):
    """Attestations about commits, newest commit first."""

    format: str  # in-toto, agent-trace or slsa-source
    commits: list[str]  # the commits
    documents: list[dict[str, Any]]  # DSSE envelopes; of agent-trace without --sign: records of Agent Trace


class CheckedDocument(NamedTuple):
    """The result of checking a file of attestations."""

    clean: bool  # whether all of them hold
    attestations: list[CheckedAttestation]  # in the order of the file


class _Wanted(NamedTuple):
    """The options of ``clia attest``."""

    text: str
    format: str
    sign: bool
    key: str | None
    allow_unsigned: bool
    resource: str | None


@command("attest", store=STORE)
def attest(
    settings: Settings,
    text: str = arg("COMMIT|A..B|verify", "what to attest: a commit, or each commit of a range; verify: check a file"),
    file: str | None = arg("FILE", "with verify: the file of attestations ('-': standard input)", nargs="?"),
    output_format: str | None = opt(None, "format (default: in-toto)", "--format", choices=FORMATS),
    sign: bool = flag("sign records of agent-trace, too; the other formats are always signed"),
    key: str | None = opt(
        "FILE", "private Ed25519 key to sign with (default: the key of this clone); with verify: a public key to trust"
    ),
    allow_unsigned: bool = flag("attest commits that are not signed or do not verify; the attestation says so"),
    resource: str | None = opt("URI", "address of the repository in slsa-source (default: that of the remote origin)"),
    output: str | None = opt("FILE", "write to a file", "-o --output"),
    path: str = PATH,
) -> Answer[Attested | CheckedDocument]:
    """Make signed attestations about commits for other tools, or check some.

    Each is a DSSE envelope with an in-toto Statement, one a line. clia attest verify FILE checks the signatures, and that the
    record in this clone shows what they say; it exits with 1 if something is wrong.
    """
    if text == _VERIFY and file is not None:
        if sign or allow_unsigned or resource or output or output_format:
            raise invalid_option("clia attest verify takes --key only")
        return _verified(settings, path, file, key)
    if file is not None:
        raise invalid_option(f"unexpected argument {file!r}", ["clia attest COMMIT --format in-toto", "clia attest verify FILE"])
    wanted = _Wanted(text, output_format or IN_TOTO, sign, key, allow_unsigned, resource)
    if resource is not None and wanted.format != SLSA_SOURCE:
        raise invalid_option("--resource goes with --format slsa-source", option="--resource")
    with provenance(path, settings) as (service, space):
        attested = _attested(service, space, wanted)
    return _written(attested, output)


def _attested(service: ProvenanceService, space: Space | None, wanted: _Wanted) -> Attested:
    from clia.provenance.dsse import signed_envelope

    attestations = service.attestations
    commits = attestations.commits(wanted.text)
    if wanted.format == AGENT_TRACE and not wanted.sign and wanted.key is None:
        return Attested(wanted.format, commits, [record for _, record in _records(space, commits)])
    verdicts = {cid: attestations.require_sound(cid, allow_unsigned=wanted.allow_unsigned) for cid in commits}
    signer = service.signer(wanted.key)
    if wanted.format == AGENT_TRACE:
        statements = [attestations.agent_trace(cid, record) for cid, record in _records(space, commits)]
    elif wanted.format == IN_TOTO:
        statements = [attestations.in_toto(cid, verdicts[cid], __version__) for cid in commits]
    else:
        statements = [attestations.slsa_source(cid, verdicts[cid], __version__, wanted.resource) for cid in commits]
    return Attested(wanted.format, commits, [signed_envelope(statement, signer) for statement in statements])


def _records(space: Space | None, commits: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """The records of Agent Trace; a commit without lines of agents has none."""
    from clia.telemetry.agent_trace import AgentTraceExport

    if space is None:
        hints = ["adopt the space first: clia init"]
        raise InvalidInput("Agent Trace records need a clone with a store", code="no-store", hints=hints)
    export = AgentTraceExport(space, __version__, None)
    return [(cid, record._asdict()) for cid in commits for record in export.records(cid, 1)]


def _written(attested: Attested, output: str | None) -> Answer[Attested | CheckedDocument]:
    from clia.provenance.attesting import lines_of_document

    lines = lines_of_document(attested.documents)
    if output is None:
        return Answer(attested, lambda: write(lines))
    try:
        with open(output, "w", encoding="utf-8") as file:
            file.write(lines)
    except OSError as err:
        raise FileError(f"{output}: {err.strerror}", fields={"path": output, "reason": err.strerror}) from None
    return Answer(attested, f"wrote {counted(len(attested.documents), 'attestation')} to {one_line(output)}")


def _verified(settings: Settings, path: str, file: str, key: str | None) -> Answer[Attested | CheckedDocument]:
    from clia.provenance.verifying import check_document
    from clia.trust.ssh_format import read_public_key

    public = None if key is None else read_public_key(read_source(key, "key"))
    text = read_source(file, "attestation")
    with provenance(path, settings) as (service, _):
        checked = check_document(text, service.attestations, public)
    clean = all(attestation.holds for attestation in checked)
    return Answer(CheckedDocument(clean, checked), lambda: _show(checked), exit_code=0 if clean else 1)


def _show(checked: Sequence[CheckedAttestation]) -> None:
    for attestation in checked:
        about = " ".join(map(short, attestation.commits))
        by = f", signed by {attestation.signer} ({attestation.key}, {attestation.trusted})" if attestation.key else ""
        write(one_line(f"{'ok' if attestation.holds else 'FAILED'}  {about}  {attestation.format}{by}") + "\n")
        for problem in attestation.problems:
            write(one_line(f"  {problem}") + "\n")
