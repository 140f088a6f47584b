"""The site's data: where they lie (`settings`), how they are read, and whether they fit the project's schema."""

from hanse_datapod.data.settings import DataSettings

__all__ = ["DataSettings"]
