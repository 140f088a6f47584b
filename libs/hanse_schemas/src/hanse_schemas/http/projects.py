"""Projects: a name and the schema of its sites' data."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Digest, Slug
from hanse_schemas.schema import DataSchema
from hanse_schemas.terms import AskedTerms, ProjectTerms


class CreateProject(Frozen):
    """A project to create. `terms`: what sites must agree to before they join; null: nothing."""

    name: Slug
    data_schema: DataSchema = Field(alias="schema")
    description: str = Field(default="", max_length=2000)
    terms: AskedTerms | None = None


class Absence(Frozen):
    """For how many days a site may be away and come back by its key alone; null: for ever."""

    days: int | None = Field(ge=1, le=3650)


class ProjectView(Frozen):
    """A project.

    Attributes:
        longest_absence_days: `Absence`'s.
        terms: what sites that join must agree to; null: nothing.
        terms_digest: of these; who reads them computes it anew.
        terms_words: the same in sentences, for people.
    """

    model_config = ConfigDict(populate_by_name=True)

    name: Slug
    data_schema: DataSchema = Field(alias="schema")
    description: str
    created_at: datetime
    created_by: str
    longest_absence_days: int | None = None
    terms: ProjectTerms | None = None
    terms_digest: Digest | None = None
    terms_words: tuple[str, ...] = ()


class ProjectList(Frozen):
    """The projects that the key may see, by name."""

    projects: tuple[ProjectView, ...]
