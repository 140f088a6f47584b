"""The bus's servers: their configuration, their streams, leaf nodes, their metrics."""
