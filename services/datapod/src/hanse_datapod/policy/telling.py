"""The policy's section `tell`: what a site's signs of life say of the site itself."""

from __future__ import annotations

from hanse_fabric.messages import Frozen


class TellPolicy(Frozen):
    """What the project's owner and the hub's operator hear of this site. That it is paused they always hear.

    Attributes:
        rules: this policy, in the words of `status`; other projects are not named.
        budget: how much of the project's privacy budget is spent, and what its ceiling is. A site that does not tell
            its number of examples (`privacy.required`, `masking.required`) says neither once it was charged for dp_sgd,
            for what that costs depends on this number.
        device: what models are trained on.
    """

    rules: bool = False
    budget: bool = False
    device: bool = True
