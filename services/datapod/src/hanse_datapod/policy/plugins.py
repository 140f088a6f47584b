"""Which plug-ins of other packages a site takes part with.

A site algorithm or a codec from a package runs at the site, on its data or its update: none does unless the
administrator has named it here, as with site code. A strategy from a package runs at the hub, which sees the same
updates whatever it makes of them: sites take part with any, unless the administrator says otherwise. What the hub says
of its own strategy, the site believes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hanse_datapod.policy.refusal import forbidden
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Frozen
from hanse_fabric.plugins import ALGORITHMS, KINDS, SERVER_OPTIMIZERS, STRATEGIES, Plugin, find
from hanse_learning.server.config.foreign import codec_plugins


class PluginsPolicy(Frozen):
    """Plug-ins by name, or by digest (`python -m hanse_fabric.plugins` shows it), which holds for that very code.

    Attributes:
        algorithms: that may train at this site; none by default.
        codecs: that updates may go through at this site; none by default.
        strategies: of the hub that this site sends updates to, and its server optimizers; None: all.
    """

    algorithms: tuple[str, ...] = ()
    codecs: tuple[str, ...] = ()
    strategies: tuple[str, ...] | None = None

    def check(self, config: Mapping[str, Any]) -> None:
        """Whether a training task with this `config` may be done.

        Raises:
            HanseError: POLICY naming the plug-in; CONFLICT where the hub means other code than is installed here;
                INVALID_INPUT where it is not installed here.
        """
        told = config.get("plugins") or {}
        if not isinstance(told, Mapping):
            raise HanseError(ErrorCode.INVALID_INPUT, "task.config.plugins: digests by name were expected")
        self._check_algorithm(config, told)
        codec = config.get("codec")
        chains = (codec.get("up") or (), codec.get("down") or ()) if isinstance(codec, Mapping) else ()
        for plugin in (plugin for chain in chains for plugin in codec_plugins(chain)):
            self._check_own(plugin, "plugins.codecs", self.codecs, told)
        for title, digest in told.items():
            kind, _, name = str(title).partition(" ")
            if self.strategies is None or kind not in (KINDS[STRATEGIES], KINDS[SERVER_OPTIMIZERS]):
                continue
            if not {name, digest} & {*self.strategies}:
                raise forbidden("plugins.strategies", f"{name} with digest {digest}", self.strategies or "none")

    def _check_algorithm(self, config: Mapping[str, Any], told: Mapping[str, Any]) -> None:
        if config.get("code") is not None:
            return
        train = config.get("train")
        given = train.get("algorithm", "fedavg") if isinstance(train, Mapping) else "fedavg"
        name = str(given.get("name", "fedavg") if isinstance(given, Mapping) else given)
        self._check_own(find(ALGORITHMS, name), "plugins.algorithms", self.algorithms, told)

    def _check_own(self, plugin: Plugin, field: str, allowed: tuple[str, ...], told: Mapping[str, Any]) -> None:
        """Of what runs at the site."""
        own = None if plugin.built_in else plugin.digest()
        known = told.get(plugin.title)
        if own is not None and not {plugin.name, own} & {*allowed}:
            raise forbidden(
                field, f"{plugin} with digest {own}", allowed or "none",
                hint="the site's administrator reads the package, and allows it by its name or digest in the policy",
            )  # fmt: skip
        plugin.check_same(known, here="this site", there="the hub")
