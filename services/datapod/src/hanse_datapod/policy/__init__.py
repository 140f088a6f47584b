"""The site's policy file: what this datapod may do, section by section."""

from hanse_datapod.policy.site_policy import Policy, load_policy

__all__ = ["Policy", "load_policy"]
