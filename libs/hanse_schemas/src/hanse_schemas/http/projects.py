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


class ProjectView(Frozen):
    """A project."""

    model_config = ConfigDict(populate_by_name=True)

    name: Slug
    data_schema: DataSchema = Field(alias="schema")
    description: str
    created_at: datetime
    created_by: str


class ProjectList(Frozen):
    """The projects that the key may see, by name."""

    projects: tuple[ProjectView, ...]
