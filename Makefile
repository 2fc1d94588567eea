# make demo    compile the examples and run both models on four ranks
# make test    run the tests
# make soak    long fuzzing and killed compilations; each states its seed and can be resumed
# make prove   the whole matrix of every stack on simulated ranks, and of the Hugging Face models;
#              writes docs/proof.md and docs/hugging_face.md
# make bench   the benchmarks that need no GPU; benchmarks/README.md has what they found
# make lint    ruff and mypy
#
# Everything is installed into .venv first; PYTHON names the interpreter to make it with (3.11 or newer).

PYTHON ?= python3
JOBS ?= 2
SEED ?= 20261129
STACKS := $(wildcard examples/*/stack.yaml) $(wildcard tests/fixtures/matrix/*.yaml)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test soak prove bench lint clean
.DELETE_ON_ERROR:

demo: $(READY)
	$(BIN)/python -m examples.demo

test: $(READY)
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile

soak: $(READY)
	$(BIN)/python -m tests.language.fuzz --count 100000 --seed $(SEED)
	$(BIN)/python -m tests.emit.soak
	$(BIN)/python -m tests.verify.soak --count 100000 --seed $(SEED) --jobs $(JOBS)

prove: $(READY)
	$(BIN)/python -m tests.plan.mutate --count 2000 --seed $(SEED)
	$(BIN)/python -m boundaryc.verify.document $(STACKS) --jobs $(JOBS) \
	    --journal build/prove.jsonl --report docs/proof.md
	$(BIN)/python -m examples.prove --jobs $(JOBS) \
	    --journal build/hugging_face.jsonl --report docs/hugging_face.md

bench: $(READY)
	failed=0; for name in plans startup simulated compile host; do \
	    echo "== $$name"; $(BIN)/python -m benchmarks.$$name || failed=1; done; exit $$failed

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check boundaryc examples tests benchmarks
	$(BIN)/mypy

clean:
	rm -rf $(VENV)

# torch goes first and alone, at the pinned version, so that nothing installed after it can choose another build.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "boundaryc needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt torch==2.13.0
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@
