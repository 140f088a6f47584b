"""`python -m hanse_privacy.rules` prints the table for docs/combinations.md."""

from hanse_privacy.rules import markdown

print(markdown(), end="")
