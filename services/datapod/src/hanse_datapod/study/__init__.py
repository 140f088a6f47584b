"""Steps of association studies at this site: their tasks, their lanes, their answers."""
