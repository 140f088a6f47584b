"""The secrets of a deployment: which there should be, and how they come into Kubernetes or into files."""
