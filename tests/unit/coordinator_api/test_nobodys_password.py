"""Who asks for somebody who is not there waits as long as for a wrong password, so that the time tells no names."""

from __future__ import annotations

import pytest
from argon2 import Parameters, PasswordHasher, extract_parameters
from argon2.exceptions import VerifyMismatchError
from argon2.profiles import CHEAPEST, RFC_9106_LOW_MEMORY

from hanse_coordinator.people.passwords import Passwords, nobodys_hash


@pytest.mark.parametrize("parameters", [CHEAPEST, RFC_9106_LOW_MEMORY], ids=["cheapest", "hub"])
def test_nobodys_hash_costs_what_every_hash_of_the_hub_costs(parameters: Parameters) -> None:
    assert extract_parameters(nobodys_hash(parameters)) == parameters
    # It is computed and compared. One that is not in the form would be refused at once, by another error.
    with pytest.raises(VerifyMismatchError):
        PasswordHasher().verify(nobodys_hash(parameters), "nobody has this password")


async def test_nobody_has_a_password() -> None:
    passwords = Passwords(CHEAPEST)
    assert not await passwords.matches(None, "nobody has this password")
    assert await passwords.matches(await passwords.hash("seven grey herons"), "seven grey herons")
