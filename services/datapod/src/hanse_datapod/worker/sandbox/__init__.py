"""What keeps the worker's process, in which site code runs, from the datapod's keys and the network, and ends it all.

The kernel does it, with no tool to be installed: Landlock lets a process open the listed files alone, whoever its user
is; namespaces give it processes, loopback and shared memory of its own; a filter of system calls closes what either
leaves open. Each is taken where it can be had (containers mostly refuse namespaces), and the process says which it got
before it touches anything of the site.
"""
