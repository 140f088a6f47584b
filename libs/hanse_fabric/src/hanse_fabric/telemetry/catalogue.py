"""The metrics of Hanse: their names, units and labels are promised; dashboards and alerts stand on them."""

from hanse_fabric.telemetry.metrics import Counter, Gauge, Histogram

UP = Gauge("hanse_ready", "1", "1 while the service is ready", ("service",))
RESIDENT = Gauge("process_resident_memory_bytes", "bytes", "Resident memory of the process")

RUNS = Gauge("hanse_runs", "runs", "Runs that this coordinator drives")
ROUNDS = Counter("hanse_rounds_total", "rounds", "Rounds finished", ("project",))
ROUND_SECONDS = Histogram("hanse_round_seconds", "seconds", "From a round's opening to its published model")
RESULTS = Counter("hanse_results_total", "results", "Answers of participants by outcome", ("outcome",))
LATE_RESULTS = Counter("hanse_late_results_total", "results", "Answers that came after their step had closed")
PARTICIPANTS = Gauge("hanse_participants_online", "participants", "Participants with a recent sign of life")
HTTP_REQUESTS = Counter("hanse_http_requests_total", "requests", "API requests by status", ("status",))
HTTP_SECONDS = Histogram("hanse_http_seconds", "seconds", "Time that an API request took")

JOBS = Counter("hanse_reduce_jobs_total", "jobs", "Reduction jobs done by kind", ("kind",))
JOB_SECONDS = Histogram("hanse_reduce_job_seconds", "seconds", "Time that a reduction job took", ("kind",))
REDUCED_BYTES = Counter("hanse_reduced_bytes_total", "bytes", "Bytes of updates read by reductions")
REFUSED_UPDATES = Counter("hanse_refused_updates_total", "updates", "Updates that could not be reduced", ("code",))

MASK_REQUESTS = Counter("hanse_mask_requests_total", "requests", "Sums of masks asked for, by answer", ("outcome",))
MASK_SECONDS = Histogram("hanse_mask_seconds", "seconds", "Time that a sum of masks took")
MASK_BYTES = Counter("hanse_mask_bytes_total", "bytes", "Bytes of masks made")

VERSIONS = Counter("hanse_model_versions_total", "versions", "Model versions recorded")
PROMOTIONS = Counter("hanse_model_promotions_total", "promotions", "Stage changes of models", ("stage",))
DELETED_VERSIONS = Counter("hanse_model_versions_deleted_total", "versions", "Versions deleted by retention or owners")

TASKS = Counter("hanse_tasks_total", "tasks", "Tasks that this datapod answered by outcome", ("outcome",))
TASK_SECONDS = Histogram("hanse_task_seconds", "seconds", "Time that a task took", ("kind",))
PRIVACY_SPENT = Gauge("hanse_privacy_spent_epsilon", "1", "Epsilon that the ledger has been charged", ("project",))
