# PyTorch (TPU): what a person types. `make` alone lists it.
#
# PYTHON    the interpreter to build the environment from (default: python3)
# LAB_ARGS  further arguments for JupyterLab, e.g. LAB_ARGS="--port 9000"
# BENCH_ARGS  further arguments for tests/bench/kernel_bench.py

PYTHON ?= python3

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
STAMPS := build/stamps
LESSON := notebooks/01-first-steps.ipynb
TARGET := $(or $(CARGO_TARGET_DIR),target)
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo $(BIN)/uv)

# Uncompiled, IPython and torch are parsed anew at each start of a kernel.
unexport PYTHONDONTWRITEBYTECODE
# The extension module takes Python's symbols from whatever process loads it.
export PYO3_BUILD_EXTENSION_MODULE := 1
export UV_HTTP_TIMEOUT ?= 300

RUST := Cargo.toml Cargo.lock $(shell find kernel tpu-core -name '*.rs' -o -name 'Cargo.toml' -o -name 'locate.py')
PYTHON_HALF := $(shell find kernel/python -name '*.py' -o -name '*.pyi' -o -name '*.pth')
KERNELSPEC := $(wildcard kernelspec/*.*)
LABEXTENSION := $(shell find kernelspec/labextension -name node_modules -prune -o -type f -print)

.PHONY: help setup lab demo test bench fuzz sweep sweep-wrong sweep-all lint docs lock clean prerequisites wheel wheel-data
help:
	@printf '%s\n' \
	  'make setup   build everything and install it into .venv' \
	  'make lab     JupyterLab on the first lesson' \
	  'make demo    the first lesson in this terminal' \
	  'make test    format, lints, Rust, Python and browser tests' \
	  'make bench   compare with ipykernel, xeus-python and ipymini; what tpu-core takes' \
	  'make fuzz    20,000 broken connections' \
	  'make sweep   every operator TorchTPU implements against the CPU' \
	  'make lint    format and lints only' \
	  'make docs    docs/magics.md, from the docstrings of the magics' \
	  'make wheel   the wheel alone, in dist/' \
	  'make lock    choose new exact versions of the Python packages' \
	  'make clean   remove what was built, .venv included'

# -- setup ---------------------------------------------------------------------

setup: prerequisites $(VENV)/installed

prerequisites:
	@requirements/prerequisites "$(PYTHON)"

# Changes only when the interpreter does.
$(STAMPS)/python: prerequisites
	@mkdir -p $(STAMPS)
	@"$(PYTHON)" -c 'import sys; print(sys.executable, sys.version)' > $@.now
	@cmp -s $@.now $@ && rm $@.now || mv $@.now $@

$(VENV)/pyvenv.cfg: $(STAMPS)/python
	@echo 'making $(VENV)'
	@if uv --version >/dev/null 2>&1; then \
	  uv venv -q --clear --python "$$("$(PYTHON)" -c 'import sys; print(sys.executable)')" $(VENV); \
	else \
	  "$(PYTHON)" -m venv --clear $(VENV) && \
	  $(BIN)/python -m pip install -q --disable-pip-version-check "$$(grep -o '^uv==[0-9.]*' requirements/dev.txt)"; \
	fi

$(VENV)/packages: requirements/dev.txt $(VENV)/pyvenv.cfg
	@echo 'installing the packages of requirements/dev.txt (the first time a few GB, for torch)'
	@"$(UV)" pip sync -q --compile-bytecode --python $(BIN)/python requirements/dev.txt
	@touch $@

$(STAMPS)/rust: $(RUST)
	cargo build --release --locked -p tpu-core -p tpu-kernel-launcher
	@mkdir -p $(STAMPS) && touch $@

# What shows the chip in JupyterLab and Notebook 7. Its types are those of JupyterLab's packages (300 MB),
# which only the lints need.
NPM_CI := npm ci --ignore-scripts --no-audit --no-fund --silent
kernelspec/labextension/node_modules: kernelspec/labextension/package-lock.json
	@echo 'installing the packages that build the JupyterLab extension'
	@cd $(@D) && $(NPM_CI) --omit=peer
	@touch $@

$(STAMPS)/labextension: $(LABEXTENSION) | kernelspec/labextension/node_modules
	@cd kernelspec/labextension && npm run --silent build
	@cp kernelspec/labextension/install.json build/labextension/
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/labextension-types: kernelspec/labextension/package-lock.json | $(STAMPS)/labextension
	@cd kernelspec/labextension && $(NPM_CI)
	@mkdir -p $(STAMPS) && touch $@

# What the wheel holds besides the Python package and its extension module.
WHEEL_DATA := build/wheel-data
$(STAMPS)/wheel-data: $(STAMPS)/rust $(STAMPS)/labextension $(KERNELSPEC) $(wildcard kernel/python/*.pth)
	@rm -rf $(WHEEL_DATA)
	@mkdir -p $(WHEEL_DATA)/scripts $(WHEEL_DATA)/platlib/tpu_kernel/lib $(WHEEL_DATA)/data/share/jupyter/kernels/pytorch-tpu
	@cp "$(TARGET)"/release/tpu-kernel $(WHEEL_DATA)/scripts/
	@cp "$(TARGET)"/release/libtpu_core.so $(WHEEL_DATA)/platlib/tpu_kernel/lib/
	@cp kernel/python/*.pth $(WHEEL_DATA)/platlib/
	@cp $(KERNELSPEC) $(WHEEL_DATA)/data/share/jupyter/kernels/pytorch-tpu/
	@mkdir -p $(WHEEL_DATA)/data/share/jupyter/labextensions
	@cp -r build/labextension $(WHEEL_DATA)/data/share/jupyter/labextensions/pytorch-tpu-kernel
	@touch $@
wheel-data: $(STAMPS)/wheel-data

$(STAMPS)/wheel: $(STAMPS)/wheel-data $(PYTHON_HALF) pyproject.toml README.md $(VENV)/packages
	@rm -rf dist
	$(BIN)/python -m maturin build --release --interpreter $(BIN)/python --out dist
	@touch $@
wheel: $(STAMPS)/wheel

$(VENV)/installed: $(STAMPS)/wheel
	@"$(UV)" pip install -q --no-deps --reinstall --compile-bytecode --python $(BIN)/python dist/*.whl
	@touch $@
	@echo 'installed PyTorch (TPU) into $(VENV): `make lab` opens it, `make demo` shows it here'

# -- use -----------------------------------------------------------------------

lab: setup
	$(BIN)/python -m jupyterlab $(LESSON) --LabApp.default_url=/lab/tree/$(notdir $(LESSON)) $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_ARGS)

demo: setup
	@$(BIN)/python notebooks/run.py $(LESSON)

# -- check ---------------------------------------------------------------------

test: setup tests/browser/node_modules $(STAMPS)/labextension-types
	@tests/run lint rust python browser

lint: setup $(STAMPS)/labextension-types
	@tests/run lint

docs: setup
	@$(BIN)/python docs/make_magics.py

tests/browser/node_modules: tests/browser/package-lock.json
	@cd tests/browser && $(NPM_CI)
	@touch $@

fuzz: setup
	TPU_KERNEL_FUZZ=20000 cargo test --release --locked -p protocol-tests --test fuzz_connections --test fuzz_kernel

sweep: setup
	$(BIN)/python tests/sweep/sweep.py

sweep-wrong: setup
	$(BIN)/python tests/sweep/sweep.py --wrong

sweep-all: setup
	$(BIN)/python tests/sweep/sweep.py --all --write

bench: setup
	@tests/bench/run $(BENCH_ARGS)

lock: $(VENV)/pyvenv.cfg
	@for set in dev bench bench-xeus-python bench-ipymini; do \
	  "$(UV)" pip compile -q --upgrade --python $(BIN)/python --python-version 3.11 --python-platform x86_64-manylinux_2_34 \
	    --no-header --annotation-style line --no-emit-index-url --no-emit-find-links \
	    requirements/$$set.in -o requirements/$$set.txt; \
	done

clean:
	rm -rf $(VENV) build dist target tests/browser/node_modules tests/browser/screenshots \
	  kernelspec/labextension/node_modules
