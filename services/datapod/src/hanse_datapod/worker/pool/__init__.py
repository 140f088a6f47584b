"""Workers in other pods: the datapod puts requests into a folder that it shares with them, and they put answers there.

The folder of a pool, all of it owner-only:

    requests/ID.json            a request, put there by renaming
    taken/ID@WORKER.json        the same file, renamed by the worker that took it: one alone succeeds
    work/ID/                    its inputs, state, progress, sums, outputs and answer
    workers/WORKER.json         a worker's heartbeat: a number that grows

The agent alone removes requests: a worker whose taken file is gone stops. A worker whose heartbeat stands still is dead
to the agent, which asks anew under another id, so that nothing that the dead one may still write is ever read. No clock
is compared with another machine's. Nothing of the datapod's home is in the folder: its keys, ledger and log stay there.
"""
