"""Hanse's model registry: versions with lineage and signature, stages, retention. The only writer of models."""
