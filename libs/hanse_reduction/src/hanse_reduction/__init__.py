"""The reduction engine: updates, plain or masked, to the next model, in bounded memory; the same bits whoever does it.

A set of K updates of P parameters is a matrix K x P that is never in memory: it is read, reduced and written in leaves.
Aggregators do it for the hub; in one process, the same engine does it on objects in memory.
"""
