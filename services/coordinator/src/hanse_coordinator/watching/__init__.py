"""What people see of runs while they run: events, audit, progress, and the operator's gauges."""
