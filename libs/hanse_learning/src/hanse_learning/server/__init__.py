"""The server's side of learning: reductions and server optimizers over blocks of columns, without any I/O.

`config` checks a job's `strategy` section and loads no numpy; `strategy` builds and applies one.
"""
