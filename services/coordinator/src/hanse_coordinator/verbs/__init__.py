"""The verbs of a run (`hanse_workflows.verbs`) on the bus: every outcome is journalled before it is returned."""
