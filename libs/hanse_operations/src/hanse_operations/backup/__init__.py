"""The bus's streams to and from an object store or a folder."""
