"""Pages that name every key of a file: its default, what may be given, an example and its meaning, all of the forms
themselves, so that no page says anything else than the code."""

from hanse_schemas.reference.pages import page as page
from hanse_schemas.reference.sections import Section as Section
from hanse_schemas.reference.sections import sections as sections
