"""Durable workflows: what a run does, journalled step by step, so that any coordinator can take it up."""
