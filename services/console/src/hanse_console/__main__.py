"""`python -m hanse_console`: one replica of the console, set up by HANSE_* variables."""

from __future__ import annotations

from hanse_console.app import serve
from hanse_console.settings import ConsoleSettings
from hanse_fabric.service import service_main

if __name__ == "__main__":
    service_main("console", ConsoleSettings, serve)
