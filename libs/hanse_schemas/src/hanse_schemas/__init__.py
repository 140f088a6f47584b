"""What people write and what the hub answers: the job file and its sections, a project's data schema, HTTP bodies.

Each form stands here once, for the hub that checks it and for the SDK that sends or reads it. Nothing here needs numpy.
"""
