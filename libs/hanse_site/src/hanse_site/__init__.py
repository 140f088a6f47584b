"""A participant's side of the hub: enrolling, and the link over which tasks come and answers go.

The datapod and the SDK's `hanse.join` both stand on it. Importing it loads neither numpy nor torch.
"""

from hanse_site.enrol import enrol
from hanse_site.identity import SiteIdentity, load_identity
from hanse_site.link import OpenTask, SiteLink

__all__ = ["OpenTask", "SiteIdentity", "SiteLink", "enrol", "load_identity"]
