"""Links to objects in a directory: `file:` addresses that are good for one method until they expire."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError, invalid


@dataclass(frozen=True, slots=True)
class LinkSigner:
    """Signs and checks links with the secret of one directory."""

    root: Path
    secret: bytes = field(repr=False)
    clock: Clock = SYSTEM_CLOCK

    @classmethod
    def of(cls, root: Path, clock: Clock = SYSTEM_CLOCK) -> LinkSigner:
        """The signer of a directory; its secret is made at first use, readable by its owner alone."""
        path = root / "link.key"
        if not path.exists():
            partial = root / f".link.{secrets.token_hex(6)}"
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
            try:
                os.link(partial, path)
            except FileExistsError:
                pass  # another process was first; both use its secret
            finally:
                partial.unlink()
        return cls(root.absolute(), path.read_bytes(), clock)

    def sign(self, method: str, path: Path, expires: timedelta, *, holding: str = "") -> str:
        """A link for `method` (GET or PUT) to a file of the directory; `holding`: what may be put there alone."""
        until = int((self.clock.now() + expires).timestamp())
        signature = self._mac(method, path, until, holding)
        return f"file://{quote(str(path))}?method={method}&until={until}&holding={holding}&signature={signature}"

    def open(self, method: str, url: str) -> tuple[Path, str]:
        """The file that a link leads to, and what may be put there.

        Raises:
            HanseError: INVALID_INPUT when it is no link of this kind, FORBIDDEN when it was not signed here or for
                another method, GONE when it has expired.
        """
        address = urlsplit(url)
        if address.scheme != "file" or address.netloc:
            raise invalid("link", f"{address.scheme}://{address.netloc}", "a file: link of a store in a directory")
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        path, until = Path(unquote(address.path)), query.get("until", "")
        holding = query.get("holding", "")
        known = until.isascii() and until.isdigit() and query.get("method") == method
        if not known or not hmac.compare_digest(
            query.get("signature", ""), self._mac(method, path, int(until), holding)
        ):
            raise HanseError(ErrorCode.FORBIDDEN, f"link to {path.name}: not signed for {method} by this store")
        if self.clock.now().timestamp() > int(until):
            raise HanseError(ErrorCode.GONE, f"link to {path.name}: expired", hint="ask for a new one")
        return path, holding

    def _mac(self, method: str, path: Path, until: int, holding: str) -> str:
        return hmac.new(self.secret, f"{method}\n{path}\n{until}\n{holding}".encode(), hashlib.sha256).hexdigest()


def etag_of(digest: str) -> str:
    """The ETag of an object or a part with this SHA-256."""
    return digest[:32]
