"""A Client API script under NVFlare's own simulator: run by `adapters.py` in NVFlare's environment, without Hanse.

`python adapters_nvflare.py SCRIPT FRAMEWORK ROUNDS FIRST OUTPUT ARGUMENTS...` trains for so many rounds of NVFlare's
FedAvg from the model FIRST (NPZ), with a client for each of ARGUMENTS (its script's command line), writes the last
model to OUTPUT (NPZ), asks the clients to validate it, and prints the mean of what they measured as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.fedavg import FedAvg

FIRST, OUTPUT = "HANSE_BENCH_FIRST", "HANSE_BENCH_OUTPUT"


class Saved(FedAvg):
    """NVFlare's FedAvg, whose first and last model lie in files."""

    def load_model(self) -> FLModel:
        with np.load(os.environ[FIRST]) as held:
            return FLModel(params={name: held[name] for name in held.files})

    def save_model(self, model: FLModel) -> None:
        self.last = model

    def run(self) -> None:
        super().run()
        last = self.last
        np.savez(os.environ[OUTPUT], **{name: np.asarray(array) for name, array in last.params.items()})
        told = self.send_model_and_wait(task_name="validate", data=FLModel(params=last.params, current_round=0))
        each = [answer.metrics if isinstance(answer.metrics, dict) else {"metric": answer.metrics} for answer in told]
        found = {name: float(np.mean([metrics[name] for metrics in each])) for name in each[0]}
        Path(f"{os.environ[OUTPUT]}.json").write_text(json.dumps({**found, "clients": len(each)}))


def main() -> None:
    """Run the script and print."""
    import adapters_nvflare  # this file, by the name that NVFlare's own process finds it by
    from nvflare.fuel.utils.constants import FrameworkType
    from nvflare.job_config.api import FedJob
    from nvflare.job_config.script_runner import ScriptRunner

    script, framework, rounds, first, output, *arguments = sys.argv[1:]
    os.environ |= {FIRST: first, OUTPUT: output}
    kinds: dict[str, Any] = {"numpy": FrameworkType.NUMPY, "pytorch": FrameworkType.PYTORCH}
    job = FedJob(name=Path(script).stem, min_clients=len(arguments))
    job.to_server(adapters_nvflare.Saved(num_clients=len(arguments), num_rounds=int(rounds)))
    for place, given in enumerate(arguments, 1):
        job.to(ScriptRunner(script=script, script_args=given, framework=kinds[framework]), f"site-{place}")
    with tempfile.TemporaryDirectory(prefix="hanse-nvflare-", ignore_cleanup_errors=True) as folder:
        job.simulator_run(folder, threads=len(arguments))
    print(Path(f"{output}.json").read_text())


if __name__ == "__main__":
    main()
