"""Experiments without servers: algorithms x partitions x attacks x seeds, in processes of one machine.

`python -m hanse_lab run FILE...` plays an experiment file (`experiment`), keeps every cell's outcome, and
writes tables, curves and a page. Sites train by `hanse_learning.site`, updates are reduced by `hanse_learning.reduce`.
"""
