"""What the collector is told in long-lived processes."""

import subprocess
import sys

PROGRAM = """
import gc
from hanse_fabric import garbage
garbage.while_loading()
assert not gc.isenabled()
garbage.settle()
assert gc.isenabled() and gc.get_freeze_count() > 1000 and gc.get_threshold()[0] > 700

class Node:
    alive = 0
    def __init__(self):
        self.me = self
        Node.alive += 1
    def __del__(self):
        Node.alive -= 1

for _ in range(200_000):
    Node()
assert Node.alive < 100_000, Node.alive
"""


def test_objects_loaded_at_the_start_are_permanent_and_cycles_made_later_are_collected() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
