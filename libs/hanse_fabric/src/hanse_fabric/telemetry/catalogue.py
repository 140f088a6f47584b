"""The metrics of Hanse: their names, units and labels are promised; dashboards and alerts stand on them.

`docs/metrics.md` is this list in words (`python -m hanse_fabric.telemetry.table` writes its table, a test compares).
Labels have few values. Where they are names of runs or participants, those who set them remove them when nobody waits
for them any more, and keep a limited number (`hanse_coordinator.watching.vitals`, `hanse_coordinator.refusals`).
"""

from hanse_fabric.telemetry.metrics import Counter, Gauge, Histogram

MINUTES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""Bounds for what may take a day, in seconds."""

# Every service
UP = Gauge("hanse_ready", "1", "1 while the service is ready", ("service",))
DEPENDENCY = Gauge("hanse_dependency_ready", "1", "1 while what the service needs answers it", ("service", "needs"))
BUILD = Gauge("hanse_build_info", "1", "Always 1, with the release that runs", ("service", "version"))
CERTIFICATE = Gauge(
    "hanse_certificate_expiry_seconds", "seconds", "Until this certificate file expires", ("service", "certificate")
)
DEVICE_INFO = Gauge("hanse_device_info", "1", "1 for the device that the service works on", ("service", "device"))
RESIDENT = Gauge("process_resident_memory_bytes", "bytes", "Resident memory of the process")
STARTED = Gauge("process_start_time_seconds", "seconds", "When the process started, since 1970")

UNREADABLE = Counter(
    "hanse_unreadable_total", "messages", "Messages and records that could not be read, by kind", ("area", "code")
)

# Coordinator: runs
RUNS = Gauge("hanse_runs", "runs", "Runs that this coordinator drives")
OPEN_RUNS = Gauge("hanse_open_runs", "runs", "Runs that have not ended, as every coordinator sees them", ("state",))
RUNS_ENDED = Counter("hanse_runs_ended_total", "runs", "Runs that this coordinator ended", ("state",))
ROUNDS = Counter("hanse_rounds_total", "rounds", "Rounds finished", ("project",))
ROUND_SECONDS = Histogram(
    "hanse_round_seconds", "seconds", "From a round's opening to its published model", bounds=MINUTES
)
PHASE_SECONDS = Histogram(
    "hanse_phase_seconds", "seconds", "Time that a step of a run was open, by kind of step", ("phase",), MINUTES
)
RUN_ROUND = Gauge("hanse_run_round", "1", "The round that a run is in", ("project", "run"))
RUN_STEP = Gauge(
    "hanse_run_step_seconds", "seconds", "Since a run's oldest open step was opened", ("project", "run", "phase")
)
RUN_IDLE = Gauge(
    "hanse_run_idle_seconds", "seconds", "Since anything was answered or recorded in a run", ("project", "run")
)
RUN_WAITING = Gauge(
    "hanse_run_waiting_participants", "participants", "Participants that a run waits for", ("project", "run")
)
WAITED_FOR = Gauge(
    "hanse_run_waiting_seconds", "seconds", "How long a run has waited for this participant",
    ("project", "run", "participant"),
)  # fmt: skip

# Coordinator: participants
PARTICIPANTS = Gauge("hanse_participants", "participants", "Enrolled participants", ("project", "state"))
SILENT_SECONDS = Gauge(
    "hanse_participant_silent_seconds", "seconds", "Since a participant that was there has last been heard",
    ("project", "participant"),
)  # fmt: skip
RESULTS = Counter("hanse_results_total", "results", "Answers of participants by outcome", ("outcome",))
LATE_RESULTS = Counter("hanse_late_results_total", "results", "Answers that came after their step had closed")
REFUSALS = Counter("hanse_refusals_total", "refusals", "What the hub, or a site's policy, refused", ("what", "code"))
REFUSED = Counter(
    "hanse_participant_refusals_total", "refusals", "Refusals by whose it was that was refused",
    ("project", "participant", "what", "code"),
)  # fmt: skip
STEP_BYTES = Counter(
    "hanse_step_bytes_total", "bytes", "Models and updates of closed steps, as tasks and answers name them",
    ("direction", "carrier"),
)  # fmt: skip
LINK_BYTES = Counter(
    "hanse_link_bytes_total", "bytes",
    "What passed between this process and sites: messages, and objects by links that it gave; part of runs, or else",
    ("link", "direction", "part"),
)  # fmt: skip

# Coordinator: queues, and its HTTP API
QUEUE_DEPTH = Gauge(
    "hanse_queue_depth", "jobs", "Jobs that this coordinator has asked for and that are not answered", ("queue",)
)
QUEUE_OLDEST = Gauge("hanse_queue_oldest_seconds", "seconds", "Since the oldest of these was asked for", ("queue",))
HTTP_REQUESTS = Counter("hanse_http_requests_total", "requests", "API requests by status", ("status",))
HTTP_SECONDS = Histogram("hanse_http_seconds", "seconds", "Time that an API request took")

# Aggregator
JOBS = Counter("hanse_reduce_jobs_total", "jobs", "Reduction jobs done by kind", ("kind",))
JOB_SECONDS = Histogram("hanse_reduce_job_seconds", "seconds", "Time that a reduction job took", ("kind",))
REDUCED_BYTES = Counter("hanse_reduced_bytes_total", "bytes", "Bytes of updates read by reductions")
REFUSED_UPDATES = Counter("hanse_refused_updates_total", "updates", "Updates that could not be reduced", ("code",))

# Compensator
MASK_REQUESTS = Counter("hanse_mask_requests_total", "requests", "Sums of masks asked for, by answer", ("outcome",))
MASK_SECONDS = Histogram("hanse_mask_seconds", "seconds", "Time that a sum of masks took")
MASK_BYTES = Counter("hanse_mask_bytes_total", "bytes", "Bytes of masks made")

# Model registry
VERSIONS = Counter("hanse_model_versions_total", "versions", "Model versions recorded")
PROMOTIONS = Counter("hanse_model_promotions_total", "promotions", "Stage changes of models", ("stage",))
DELETED_VERSIONS = Counter("hanse_model_versions_deleted_total", "versions", "Versions deleted by retention or owners")

# Datapod
TASKS = Counter("hanse_tasks_total", "tasks", "Tasks that this datapod answered by outcome", ("outcome",))
TASK_SECONDS = Histogram("hanse_task_seconds", "seconds", "Time that a task took", ("kind",), MINUTES)
SITE_BYTES = Counter(
    "hanse_site_bytes_total", "bytes", "Models fetched and updates sent by this datapod", ("direction", "carrier")
)
PRIVACY_SPENT = Gauge(
    "hanse_privacy_spent_epsilon", "1", "Epsilon that the ledger was charged; (site): for all projects", ("project",)
)
PRIVACY_BUDGET = Gauge("hanse_privacy_budget_epsilon", "1", "Epsilon that the site's policy allows", ("project",))

# Bus exporter
BUS_UP = Gauge("hanse_bus_up", "1", "1 while this NATS server's monitoring answers")
BUS_STORAGE = Gauge("hanse_bus_storage_bytes", "bytes", "What this server's JetStream has stored")
BUS_STORAGE_LIMIT = Gauge("hanse_bus_storage_limit_bytes", "bytes", "What this server's JetStream may store")
BUS_CONNECTIONS = Gauge("hanse_bus_connections", "connections", "Clients of this server")
BUS_SLOW = Gauge("hanse_bus_slow_consumers", "consumers", "Clients that this server has cut off for being slow")
BUS_LEADER = Gauge("hanse_bus_meta_leader", "1", "1 while this server knows of a leader of its JetStream cluster")
BUS_BYTES = Gauge("hanse_bus_bytes", "bytes", "Bytes that this server has passed since its start", ("direction",))
