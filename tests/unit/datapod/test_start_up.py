"""What a datapod loads before it has a task: four of them start on two cores in the demonstration."""

import subprocess
import sys


def test_an_agent_starts_without_numpy_and_torch() -> None:
    program = "import sys, hanse_datapod.process.service; print(sorted({'numpy', 'torch', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
