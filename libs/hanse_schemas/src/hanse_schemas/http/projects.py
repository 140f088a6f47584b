"""Projects: a name and the schema of its sites' data."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Slug
from hanse_schemas.schema import DataSchema


class CreateProject(Frozen):
    """A project to create."""

    name: Slug
    data_schema: DataSchema = Field(alias="schema")
    description: str = Field(default="", max_length=2000)


class Absence(Frozen):
    """For how many days a site may be away and come back by its key alone; null: for ever."""

    days: int | None = Field(ge=1, le=3650)


class ProjectView(Frozen):
    """A project. `longest_absence_days`: `Absence`'s."""

    model_config = ConfigDict(populate_by_name=True)

    name: Slug
    data_schema: DataSchema = Field(alias="schema")
    description: str
    created_at: datetime
    created_by: str
    longest_absence_days: int | None = None


class ProjectList(Frozen):
    """The projects that the key may see, by name."""

    projects: tuple[ProjectView, ...]
