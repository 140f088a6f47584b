"""What every Hanse service stands on: messages, bus, object store, tensor files, identity, settings, telemetry."""

__version__ = "0.1.0"
