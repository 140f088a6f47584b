"""A project's terms: its owner writes them, sites see them before they join, and say whether they agree."""

from __future__ import annotations

from pydantic import ValidationError

from hanse_coordinator.api.by_signature import require_member, who_signed
from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.proof import good_invitation
from hanse_coordinator.api.route import OWN, PUBLIC, Request, Route, view
from hanse_coordinator.records import ProjectRecord
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity import secrets
from hanse_fabric.identity.keys import VerifyKey
from hanse_fabric.messages.explained import explain
from hanse_fabric.messages.participants import Consent, ParticipantRecord
from hanse_fabric.names import Digest
from hanse_schemas.http.joining import AskChallenge, Consented, Preview, ToConsent, check_clocks
from hanse_schemas.http.projects import ProjectView
from hanse_schemas.schema import DataSchema
from hanse_schemas.terms import AskedTerms, ProjectTerms, SiteConsent


async def set_terms(hub: Hub, request: Request) -> ProjectView:
    body: AskedTerms = request.body

    def written(old: ProjectRecord) -> ProjectRecord:
        made = next_terms(old.name, old.data_schema, body, old.terms)
        return old.model_copy(update={"terms": made})

    project = (await hub.buckets.projects.change(written, project=request.project)).value
    await tell_terms(hub, request, project)
    return project_view(project)


def next_terms(project: str, schema: DataSchema, asked: AskedTerms, before: ProjectTerms | None = None) -> ProjectTerms:
    """The terms as the next version; those of before where nothing else is asked. Pure."""
    if before is not None and before.asked == asked:
        return before
    return ProjectTerms(project=project, version=1 if before is None else before.version + 1, asked=asked,
                        data_schema=schema)  # fmt: skip


async def tell_terms(hub: Hub, request: Request, project: ProjectRecord) -> None:
    """The audit has which terms were written, and by whom."""
    if project.terms is not None:
        await hub.audit(
            request.caller, project.name, "project.terms", f"project:{project.name}", terms=project.terms.digest,
            version=str(project.terms.version),
        )  # fmt: skip


def project_view(record: ProjectRecord) -> ProjectView:
    """A project as people see it. Pure."""
    words = () if record.terms is None else tuple(record.terms.in_words())
    return view(ProjectView, record, terms_digest=digest_of(record), terms_words=words)


def digest_of(record: ProjectRecord) -> Digest | None:
    """Of the project's terms. Pure."""
    return None if record.terms is None else record.terms.digest


async def preview(hub: Hub, request: Request) -> Preview:
    """What a token is for. Nothing is joined, and the token stays as it is."""
    body: AskChallenge = request.body
    invitation = await good_invitation(hub, request, secrets.parse(body.token, secrets.Kind.JOIN_TOKEN))
    project = await hub.project(invitation.project)
    return Preview(
        hub_name=hub.info.name, project=project.name, participant=invitation.participant,
        description=project.description, data_schema=project.data_schema, terms=project.terms,
        terms_digest=digest_of(project),
    )  # fmt: skip


async def give_consent(hub: Hub, request: Request) -> Consented:
    """Who asks is told by the signature alone, which is kept: the site can be shown what it has agreed to."""
    body: ToConsent = request.body
    statement = _statement(body.project, body.participant, body.consent)
    record = await who_signed(
        hub, request, statement, body.consent.signature, project=body.project, participant=body.participant,
        what="consent",
    )  # fmt: skip
    require_member(record)
    check_consent(hub, await hub.project(body.project), body.participant, body.consent, VerifyKey(record.public_key))
    if is_news(record, body.consent):
        await hub.buckets.participants.change(
            lambda old: old.model_copy(update={"consent": body.consent}),
            project=body.project, participant=body.participant,
        )  # fmt: skip
        await tell_consent(hub, body.project, body.participant, body.consent)
    return Consented(terms=body.consent.terms)


def is_news(record: ParticipantRecord, consent: Consent) -> bool:
    """Whether a site has not agreed to these terms before, at whatever time and in whose name: each consent that is
    written down is in the audit for good, which a site could fill. Pure."""
    return record.consent is None or record.consent.terms != consent.terms


def check_consent(hub: Hub, project: ProjectRecord, participant: str, consent: Consent | None, key: VerifyKey) -> None:
    """Whether a site agrees to the project's terms of now.

    Raises:
        HanseError: CONFLICT where it does not, or has agreed to others, or where there are none; TAMPERED for a
            signature of somebody else; CLOCK_SKEW; INVALID_INPUT for a name that is none.
    """
    if consent is not None:  # first of all, for nobody else may be told anything, or have anything written down
        statement = _statement(project.name, participant, consent)
        key.verify(consent.signature, statement, what=f"consent of {participant}")
        now = hub.clock.now()
        # A site may have agreed long before it can tell the hub; but nobody agrees in the future.
        check_clocks(max(consent.at, now), now, field="consent.at")
    wanted = digest_of(project)
    if wanted is None and consent is not None:
        raise HanseError(
            ErrorCode.CONFLICT, f"consent: project {project.name} has no terms to agree to", hint="join without it"
        )
    if wanted is not None and (consent is None or consent.terms != wanted):
        given = "the site agrees to none" if consent is None else f"the site agrees to {consent.terms}"
        raise HanseError(
            ErrorCode.CONFLICT, f"consent: project {project.name} has terms, {wanted}; {given}",
            hint="read them first: hanse site preview URL TOKEN; then join with: --accept DIGEST. The token is still "
            "good; software of release 0.1.0 must be upgraded",
        )  # fmt: skip


def _statement(project: str, participant: str, consent: Consent) -> bytes:
    """What a site has signed that agrees; INVALID_INPUT for a name that is none."""
    try:
        said = SiteConsent(
            project=project, participant=participant, terms=consent.terms, by=consent.by, at=consent.at
        )  # fmt: skip
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"consent: {explain(error, SiteConsent)}") from None
    return said.canonical()


async def tell_consent(hub: Hub, project: str, participant: str, consent: Consent) -> None:
    """The audit has that a site agrees: to what, who has said so there, when, and its signature."""
    told = consent.model_dump(mode="json")
    await hub.audit_as(
        f"participant:{participant}", "its own key", project, "participant.consent", f"participant:{participant}",
        **told,
    )  # fmt: skip


ROUTES = (
    Route("POST", "/v1/projects/{project}/terms", OWN, set_terms, ProjectView,
          "Write a project's terms; sites say anew whether they agree", body=AskedTerms),
    Route("POST", "/v1/join/preview", PUBLIC, preview, Preview, "What a token is for, before anything is joined",
          body=AskChallenge),
    Route("POST", "/v1/consent", PUBLIC, give_consent, Consented,
          "Agree to a project's terms of now; signed by the site", body=ToConsent),
)  # fmt: skip
