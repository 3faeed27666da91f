# ctrun's build. `make help` lists the targets; build/<mode>/ holds everything that is made.
#
#   make                      programs, release mode
#   make MODE=asan unit/coll  one module's unit tests under AddressSanitizer + UBSan
#   make CC=clang DEV=1       another compiler, warnings are errors
#   make MODE=check warnings  what a compiler says of the tests and of CUDA's kernels; nothing of it runs
#   make CC="ccache gcc" ...  a compiler through ccache
#   make CUDA=0               without the CUDA device, where there is a toolkit
#   make BUILD=/tmp/x ...     another place for what is built
#   make ARCH=arm64           for arm64, by Debian's cross compiler (scripts/deps --arm64)
#
# A module is a folder of C files (MODULES below), built into one archive; what it may use is its
# DEPS line, and scripts/lint holds the includes to it.

MODE ?= release
ifeq ($(origin ARCH),command line)
$(if $(filter arm64,$(ARCH)),,$(error ARCH=$(ARCH) is not known: arm64, or name a compiler with CC=))
CC := aarch64-linux-gnu-gcc
endif
# The processor that this compiler builds for, and whether it is another one than this machine's.
PROCESSOR := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
CROSS := $(filter-out $(shell uname -m),$(PROCESSOR))
# Another processor's libraries: a root folder for it (scripts/deps --arm64), else those that apt has
# installed beside this machine's (dpkg --add-architecture).
ARM64_ROOT ?= /var/cache/ctrun/arm64-root
SYSROOT ?= $(if $(filter aarch64,$(CROSS)),$(wildcard $(ARM64_ROOT)))
ifneq ($(CROSS),)
ifeq ($(origin AR),default)
AR := $(patsubst %gcc,%ar,$(lastword $(CC)))
endif
endif
BUILD ?= build/$(if $(filter-out cc gcc,$(lastword $(CC))),$(notdir $(lastword $(CC)))-)$(MODE)
PREFIX ?= /usr/local
LIBDIR ?= lib
CUDA ?= auto
UCX ?= auto
DEV ?= 0
V ?= 0
Q := $(if $(filter 1,$(V)),,@)
SAY := @$(if $(or $(filter 1,$(V)),$(findstring s,$(firstword -$(MAKEFLAGS)))),true,echo)

# ---- modules: folder, dependencies, libraries ---------------------------------------------------
MODULES := base wire config keys net rpc tcpstore launch hook tensor cuda graph decode recipe data train replica rdzv agent doctor top coll bench plan planner exec calibrate ps trainer

DIRS_base   := lib/base lib/base/log lib/base/number
DIRS_wire   := lib/wire
DIRS_config := lib/config
DIRS_keys   := lib/keys
DIRS_net    := lib/net
DIRS_rpc    := lib/rpc
DIRS_tcpstore := rendezvous/tcpstore
DIRS_launch := lib/launch lib/launch/failure lib/output lib/hardware lib/diagnose lib/slurm lib/kubernetes
DIRS_hook   := lib/hook
DIRS_tensor := lib/tensor lib/tensor/cpu lib/tensor/cpu/kernel
DIRS_cuda   := lib/tensor/cuda lib/tensor/cuda/attention lib/tensor/cuda/rows
DIRS_graph  := lib/graph
DIRS_decode := lib/decode
DIRS_recipe := lib/recipe
DIRS_data   := lib/data
DIRS_train  := lib/train lib/train/checkpoint lib/train/plot
DIRS_rdzv   := $(addprefix rendezvous/,core history service holder server page client store)
DIRS_replica := rendezvous/replica
DIRS_agent  := cmd/ctrun/agent/core
DIRS_doctor := cmd/ctrun/doctor/core
DIRS_top    := cmd/ctrun/top/core
DIRS_coll   := $(addprefix collectives/,job group algorithm reduce) \
               $(addprefix collectives/backend/,self local tcp message ucx mpi hier staged nccl) \
               collectives collectives/backend
DIRS_bench  := collectives/bench
DIRS_plan   := collectives/plan collectives/plan/passes collectives/plan/passes/fuse
DIRS_planner := collectives/planner
DIRS_exec   := collectives/exec
DIRS_calibrate := collectives/planner/calibrate
DIRS_ps     := collectives/ps
DIRS_trainer := cmd/ctworker/trainer cmd/ctworker/trainer/worker

DEPS_base   :=
DEPS_wire   := base
DEPS_config := base
DEPS_keys   := base
DEPS_net    := base wire keys
DEPS_rpc    := base wire keys net
DEPS_tcpstore := base wire keys net
DEPS_launch := base wire
DEPS_hook   := base launch
DEPS_tensor := base
DEPS_cuda   := base tensor
DEPS_graph  := base tensor
DEPS_decode := base tensor graph
DEPS_recipe := base config tensor graph
DEPS_data   := base
DEPS_train  := base
DEPS_rdzv   := base wire keys net replica
DEPS_replica := base wire
DEPS_agent  := base launch rdzv
DEPS_doctor := base
DEPS_top    := base
DEPS_coll   := base wire keys net
DEPS_bench  := base coll
DEPS_plan   := base tensor graph
DEPS_planner := base config recipe train tensor graph plan
DEPS_exec   := base wire tensor graph coll plan
DEPS_calibrate := base tensor graph coll bench plan planner exec
DEPS_ps     := base wire keys net rpc tensor graph coll plan
DEPS_trainer := base config recipe data train tensor graph decode coll plan planner exec ps

LIBS_base   := -lm
LIBS_config := -lyaml
LIBS_net    := -luv
LIBS_rpc    := -luv
LIBS_tcpstore := -luv
LIBS_launch := -luv -ljansson
LIBS_hook   := -luv
LIBS_data   := -lz -lpcre2-8
LIBS_train  := -ljansson
LIBS_top    := -ljansson

PROGRAMS := ctrun ctrund ctworker
# The folders of program $1 that are no module.
folders = cmd/$1 $(filter-out $(DIRS_agent),$(patsubst %/.,%,$(wildcard $(addsuffix /.,$(addprefix cmd/$1/,agent agent/* cli doctor models operators plot scheduler sweep top)))))
USES_ctrun    := config decode data train recipe planner launch hook tcpstore rdzv agent doctor top bench calibrate
USES_ctrund   := config rdzv hook
USES_ctworker := trainer
# Libraries of program $1 alone.
OWN_ctrun     := -lncursesw -ltinfo

# ---- flags --------------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wundef -Wvla -Wformat=2 -Wwrite-strings -Wpointer-arith -Wimplicit-fallthrough
HARDEN_x86_64 := -fcf-protection
HARDEN_aarch64 := -mbranch-protection=standard
HARDEN := -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection $(HARDEN_$(PROCESSOR))
SAN_asan := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
SAN_tsan := -fsanitize=thread
SAN_cov := --coverage

OPT_release := -O2 $(HARDEN)
OPT_asan := -O1 $(SAN_asan)
OPT_tsan := -O1 $(SAN_tsan)
OPT_cov := -O0 $(SAN_cov)
OPT_check := -fsyntax-only
SAN_fuzz := -fsanitize=address,undefined -fno-sanitize-recover=all
OPT_fuzz := -O1 $(SAN_fuzz) -fsanitize=fuzzer-no-link

CPPFLAGS += -D_GNU_SOURCE -Ilib -Icollectives -I.
CFLAGS ?= -g
ALL_CFLAGS = -std=c17 -pthread -fPIC -fvisibility=hidden -ffp-contract=off $(WARN) $(if $(filter 1,$(DEV)),-Werror) \
             $(OPT_$(MODE)) $(CFLAGS)$(SYSROOT:%= --sysroot=%)
ALL_LDFLAGS = -pthread -pie -Wl,-z,relro,-z,now -Wl,--as-needed $(SAN_$(MODE)) $(LDFLAGS)
# Most tests compute little: they take a quarter less to compile than with the product's flags. But for what measures,
# simulates, emulates a GPU or computes what has to come out.
OPT_TESTS := -O1
TESTS_THAT_COMPUTE := bench sim lib unit/coll/support unit/tensor
STAMP := $(BUILD)/flags
FLAGS_NOW := $(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(OPT_TESTS)

# Under a sanitizer, and for another processor, the tests run on a runner of our own (tests/lib/mini),
# which forks where Criterion starts each test's program anew: half of the time of a short test.
MINI := $(filter asan tsan,$(MODE)) $(CROSS)
MINI := $(strip $(MINI))
$(BUILD)/obj/tests/%.o: CPPFLAGS += -Itests/lib $(if $(MINI),-Itests/lib/mini)
$(BUILD)/obj/tests/%.o: WARN += $(if $(MINI),-Wno-pedantic -Wno-format-zero-length)
$(BUILD)/obj/tests/%.o: OPT_release := $(OPT_TESTS)
$(TESTS_THAT_COMPUTE:%=$(BUILD)/obj/tests/%/%.o): OPT_release := $(OPT_release)
# Vector kernels: one file an instruction set, chosen at run time. The flags let both compilers
# vectorise plain loops; none of them changes a value.
# Under a sanitizer -O3 finds nothing more, and 9 files would take two fifths of the build's time.
VECTOR := $(if $(SAN_$(MODE)),-O1,-O3) -fopenmp-simd -fno-math-errno -fno-trapping-math
%_portable.o: ISA := $(VECTOR)
%_avx2.o: ISA := $(VECTOR) -mavx2 -mfma -mf16c
%_avx512.o: ISA := $(VECTOR) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c \
                   -mprefer-vector-width=512

comma := ,
# ---- what there is ------------------------------------------------------------------------------
uniq = $(if $1,$(firstword $1) $(call uniq,$(filter-out $(firstword $1),$1)))
# Modules that $1 needs, users before used.
closure = $(call uniq,$(foreach m,$1,$m) $(foreach m,$1,$(call closure,$(DEPS_$m))))
ordered = $(foreach m,$(call reverse,$(MODULES)),$(filter $m,$(call closure,$1)))
reverse = $(if $1,$(call reverse,$(wordlist 2,99,$1)) $(firstword $1))
# One of the two stands for UCX: its headers are needed to build, the library only to run.
HAS_UCX := $(if $(filter auto,$(UCX)),$(shell $(CC) $(SYSROOT:%=--sysroot=%) -include ucp/api/ucp.h -E -x c /dev/null >/dev/null 2>&1 && echo 1),$(UCX))
ABSENT := $(patsubst %,collectives/backend/ucx/ucx_%.c,$(if $(filter 1,$(HAS_UCX)),none,library worker transport))
# A processor has files of its own, by the ends of their names; any other one has *_any.c.
ENDS_x86_64 := x86_64 avx2 avx512
ENDS_aarch64 := aarch64 neon
NOT_HERE := $(addprefix %_,$(addsuffix .c,$(filter-out $(or $(ENDS_$(PROCESSOR)),any),$(ENDS_x86_64) $(ENDS_aarch64) any)))
# What includes CUDA's headers goes into libctrun_cuda.so alone.
sources = $(filter-out $(ABSENT) lib/tensor/cuda/%_cuda.c $(NOT_HERE),$(wildcard $(addsuffix /*.c,$1)))
archives = $(foreach m,$(call ordered,$1),$(BUILD)/lib/libct_$m.a)
libs = $(call uniq,$(foreach m,$(call ordered,$1),$(LIBS_$m)))
objects = $(patsubst %.c,$(BUILD)/obj/%.o,$1)
# A folder of tests and those in it, but for those of programs by themselves.
with_folders = $1 $(filter-out %/programs %/conformance %/preload,$(patsubst %/.,%,$(wildcard $1/*/.)))

# What tests in folders share.
$(BUILD)/obj/tests/unit/coll/%.o $(BUILD)/obj/tests/e2e/conformance/%.o: CPPFLAGS += -Itests/unit/coll/support
$(BUILD)/obj/tests/unit/launch/%.o: CPPFLAGS += -Itests/unit/launch
$(BUILD)/obj/tests/unit/top/%.o: CPPFLAGS += -Itests/unit/top
$(BUILD)/obj/tests/e2e/%.o: CPPFLAGS += -Itests/e2e
# What tests of a module use besides.
TEST_USES_decode := train exec
TEST_USES_replica := rdzv
TEST_USES_launch := config
UNIT_MODULES := $(foreach m,$(filter-out $(if $(CROSS),cuda),$(MODULES)),$(if $(wildcard tests/unit/$m/.),$m))
BINARIES := $(foreach p,$(PROGRAMS),$(if $(wildcard cmd/$p/*.c),$(BUILD)/bin/$p))
TEST_LIB := tests/lib/proc.c tests/lib/munged.c tests/lib/equal.c tests/lib/equal_table.c $(if $(MINI),tests/lib/mini/mini.c)
TEST_LINK := $(if $(MINI),,-lcriterion)
# Tools of tests, each for the modules that it names: a test is linked with those that it uses.
TEST_TOOLS := $(BUILD)/tests/libtools.a

# What programs link (pkg-config ctrun): the collectives and all below them, in one archive.
LIBRARY := $(BUILD)/lib/libctrun.a
# The same for programs that load it, as Python does, or link it with -lctrun: what its map lists and nothing else.
SHARED := $(BUILD)/lib/libctrun.so.1
# In front of that one: models, plans and their executor (pkg-config ctrun-train).
TRAIN_LIBRARY := $(BUILD)/lib/libctrun_train.a

# Loaded by ctworker where a driver answers. CUDA=1: or fail; CUDA=0: never; sanitizers have no use
# for it. Newer GPUs than Hopper translate the PTX of compute capability 8.0.
NVCC ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(shell command -v $(lastword $(NVCC))))
CUDA_ARCH ?= -gencode=arch=compute_90a,code=sm_90a $(if $(filter check,$(MODE)),,-gencode=arch=compute_80,code=compute_80)
ifeq ($(CUDA)$(NVCC),1)
$(error CUDA=1, but there is no nvcc: install NVIDIA's toolkit, or say where: NVCC=/path/to/nvcc)
endif
HAS_CUDA := $(if $(and $(filter-out 0,$(CUDA)),$(NVCC),$(filter release check,$(MODE))),\
              $(filter 1,$(CUDA) $(if $(shell command -v g++),1)))
CUDA_SOURCES := $(wildcard $(foreach d,$(DIRS_cuda),$d/*.c $d/*.cu))
CUDA_BESIDE := lib/tensor/op.c lib/tensor/tensor.c $(call sources,$(DIRS_base))
CUDA_LIBRARY := $(if $(HAS_CUDA),$(BUILD)/lib/libctrun_cuda.so)

.PHONY: all
all: $(BINARIES) $(LIBRARY) $(SHARED) $(TRAIN_LIBRARY) $(CUDA_LIBRARY) ## build the programs and the library

# ---- rules --------------------------------------------------------------------------------------
$(STAMP): FORCE
	@mkdir -p $(@D)
	@echo '$(FLAGS_NOW)' | cmp -s - $@ || echo '$(FLAGS_NOW)' > $@
.PHONY: FORCE
FORCE:

$(BUILD)/obj/cmd/ctrun/agent/job/wandb_python.o: cmd/ctrun/agent/job/wandb_follow.py
$(BUILD)/obj/rendezvous/page/asset.o: $(wildcard rendezvous/page/page.*)
# What is checked leaves no object.
CHECKED = $(if $(filter check,$(MODE)),&& touch $@)
$(BUILD)/obj/%.o: %.c $(STAMP)
	@mkdir -p $(@D)
	$(SAY) '  CC   $<'
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(ISA) -MMD -MP -c $< -o $@ $(CHECKED)

define module_rule
$(BUILD)/lib/libct_$1.a: $(call objects,$(call sources,$(DIRS_$1)))
	@mkdir -p $$(@D)
	$(Q)rm -f $$@ && $(AR) rcs $$@ $$^
endef
$(foreach m,$(MODULES),$(eval $(call module_rule,$m)))

$(LIBRARY): $(call objects,$(foreach m,$(call ordered,coll),$(call sources,$(DIRS_$m))))
	@mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(SHARED): $(call archives,coll) collectives/libctrun.map
	@mkdir -p $(@D)
	$(SAY) '  LD   $@'
	$(Q)$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,$(@F),--version-script=collectives/libctrun.map,--whole-archive $< \
	    -Wl,--no-whole-archive $(filter-out $<,$(filter %.a,$^)) $(filter-out -pie,$(ALL_LDFLAGS)) \
	    $(if $(SAN_$(MODE)),,-Wl$(comma)-z$(comma)defs) -lm -o $@
	$(Q)ln -sf $(@F) $(basename $@)

$(TRAIN_LIBRARY): $(call objects,$(foreach m,$(filter-out $(call closure,coll),$(call ordered,exec)),\
                    $(call sources,$(DIRS_$m))))
	@mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# Nothing is fused that the source does not fuse: the CPU's bits, as -ffp-contract=off has them.
NVCC_FLAGS = -std=c++17 $(NVCC_OPT) -fmad=false $(CUDA_ARCH) -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra \
             $(if $(filter 1,$(DEV)),-Werror all-warnings)
# What is only checked is compiled for one of the two, with half of the time.
NVCC_OPT := $(if $(filter check,$(MODE)),-O1 -Xcicc -O1 -Xptxas -O1,-O3)
CUDA_STAMP := $(BUILD)/flags-cuda
$(CUDA_STAMP): FORCE
	@mkdir -p $(@D)
	@echo '$(NVCC) $(NVCC_FLAGS)' | cmp -s - $@ || echo '$(NVCC) $(NVCC_FLAGS)' > $@

$(BUILD)/pic/%.o: %.c $(STAMP)
	@mkdir -p $(@D)
	$(SAY) '  CC   $<'
	$(Q)$(CC) $(CPPFLAGS) -isystem $(CUDA_HOME)/include $(ALL_CFLAGS) -MMD -MP -c $< -o $@ $(CHECKED)

$(BUILD)/pic/%.cu.o: %.cu $(CUDA_STAMP)
	@mkdir -p $(@D)
	$(SAY) '  NVCC $<'
	$(Q)$(NVCC) $(CPPFLAGS) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

CUDA_OBJECTS := $(patsubst %.cu,$(BUILD)/pic/%.cu.o,$(filter %.cu,$(CUDA_SOURCES))) \
                $(patsubst %.c,$(BUILD)/pic/%.o,$(filter %.c,$(CUDA_SOURCES)) $(CUDA_BESIDE))
$(BUILD)/lib/libctrun_cuda.so: $(CUDA_OBJECTS)
	@mkdir -p $(@D)
	$(SAY) '  NVLD $@ (toolkit in $(CUDA_HOME))'
	$(Q)$(NVCC) -shared -cudart static $^ -Xlinker --exclude-libs,ALL,--as-needed,-z,defs,-z,relro,-z,now \
	    -L$(CUDA_HOME)/lib64 -Xlinker -rpath,$(CUDA_HOME)/lib64 -lcublasLt -lm -o $@

define program_rule
$(BUILD)/bin/$1: $(call objects,$(call sources,$(call folders,$1))) $(call archives,$(USES_$1))
	@mkdir -p $$(@D)
	$$(SAY) '  LD   $$@'
	$(Q)$(CC) $$(ALL_CFLAGS) $$^ $$(ALL_LDFLAGS) $(call libs,$(USES_$1)) $(OWN_$1) -o $$@
endef
$(foreach p,$(PROGRAMS),$(eval $(call program_rule,$p)))

# What the wheel holds: programs with their libraries inside, since a wheel may count on glibc alone.
WHEEL_PROGRAMS := $(patsubst %,$(BUILD)/wheel/%,$(PROGRAMS))
WHEEL_TESTED := $(if $(filter release,$(MODE)),$(WHEEL_PROGRAMS))
STATIC-luv := -l:libuv_a.a
$(foreach l,yaml jansson z pcre2-8 ncursesw tinfo,$(eval STATIC-l$l := -l:lib$l.a))
define wheel_rule
$(BUILD)/wheel/$1: $(BUILD)/bin/$1
	@mkdir -p $$(@D)
	$$(SAY) '  LD   $$@'
	$(Q)$(CC) $$(ALL_CFLAGS) $(call objects,$(call sources,$(call folders,$1))) $(call archives,$(USES_$1)) $$(ALL_LDFLAGS) \
	    $(foreach l,$(call libs,$(USES_$1)) $(OWN_$1),$(or $(STATIC$l),$l)) -o $$@
endef
$(foreach p,$(PROGRAMS),$(eval $(call wheel_rule,$p)))

# The CUDA device's own kernels for the host: tests run them there (tests/lib/hostcuda).
HOSTCUDA := tests/lib/hostcuda
HOST_CXX = $(filter ccache,$(CC)) $(if $(findstring clang,$(CC)),clang++,g++)
HOST_CXXFLAGS = -std=c++17 -pthread -fPIC -ffp-contract=off -fno-strict-aliasing -fno-exceptions -fno-rtti \
                -fno-threadsafe-statics -Wall -Wextra -Wno-unknown-pragmas -Wno-pass-failed -Wno-unused-function \
                $(if $(filter 1,$(DEV)),-Werror) $(OPT_$(MODE)) $(if $(findstring clang,$(CC)),,$(SHARED_$(MODE))) $(CFLAGS)
SHARED_asan := -fsanitize-sections=hostcuda_shared
$(BUILD)/hostcuda/%.o: %.cu $(STAMP)
	@mkdir -p $(@D)
	$(SAY) '  C++  $<'
	$(Q)$(HOST_CXX) -x c++ -DCT_HOSTCUDA $(CPPFLAGS) -I$(HOSTCUDA) $(HOST_CXXFLAGS) -MMD -MP -c $< -o $@ $(CHECKED)
HOST_KERNELS := $(patsubst %.cu,$(BUILD)/hostcuda/%.o,$(filter %.cu,$(CUDA_SOURCES)) $(wildcard tests/unit/cuda/*.cu)) \
                $(call objects,$(call sources,$(HOSTCUDA)) tests/unit/tensor/kit.c)
$(BUILD)/hostcuda/%.c.o: %.c $(STAMP)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -I$(HOSTCUDA) -I$(HOSTCUDA)/include $(ALL_CFLAGS) -fvisibility=default -MMD -MP -c $< -o $@ $(CHECKED)

# All of the device with it, on a runtime and a driver that need no GPU (tests/lib/hostcuda/runtime.h),
# beside the programs as libraries of NVIDIA's and ours are: end-to-end tests train there.
HOSTGPU := $(BUILD)/tests/gpu
hostgpu = $(patsubst %.c,$(BUILD)/hostcuda/%.c.o,$1)
HOSTGPU_LINK = $(CC) $(ALL_CFLAGS) -shared -Wl,--no-as-needed $(SAN_$(MODE)) -L$(HOSTGPU)/lib -Wl,-rpath,'$$ORIGIN'
$(HOSTGPU)/lib/libcuda.so.1: $(call hostgpu,$(patsubst %,$(HOSTCUDA)/%.c,driver stream graph memory) lib/base/assert.c)
	@mkdir -p $(@D)
	$(Q)$(HOSTGPU_LINK) -Wl,-soname,$(@F) $^ -o $@
$(HOSTGPU)/lib/libctrun_cuda.so: $(filter $(BUILD)/hostcuda/lib/%,$(HOST_KERNELS)) \
                                 $(call hostgpu,$(filter %.c,$(CUDA_SOURCES)) $(CUDA_BESIDE) \
                                   $(patsubst %,$(HOSTCUDA)/%.c,host fiber cublaslt)) | $(HOSTGPU)/lib/libcuda.so.1
	$(Q)$(HOSTGPU_LINK) -Wl,-z,defs $^ -l:libcuda.so.1 -lm -o $@
$(BUILD)/hostcuda/tests/lib/fakenccl/%.c.o: WARN += -Wno-missing-prototypes
$(HOSTGPU)/lib/libnccl.so.2: $(call hostgpu,$(patsubst %,tests/lib/fakenccl/%.c,nccl child memory world sum cuda) lib/base/number/dtype.c lib/base/assert.c) \
                             | $(HOSTGPU)/lib/libcuda.so.1
	$(Q)$(HOSTGPU_LINK) $^ -l:libcuda.so.1 -o $@
$(HOSTGPU)/bin/%: $(BUILD)/bin/%
	@mkdir -p $(@D)
	$(Q)ln -f $< $@
$(HOSTGPU)/bin/nccl: $(BUILD)/bench/nccl
	@mkdir -p $(@D)
	$(Q)ln -f $< $@
# clang leaves a library's calls of its sanitizers to the program, and -z defs does not.
HOSTGPU_MODES := release $(if $(findstring clang,$(CC)),,asan)
HOSTGPU_ALL := $(patsubst %,$(HOSTGPU)/lib/%,libcuda.so.1 libctrun_cuda.so libnccl.so.2) $(patsubst %,$(HOSTGPU)/bin/%,$(PROGRAMS) nccl)
$(BUILD)/obj/tests/unit/cuda/%.o: CPPFLAGS += -I$(HOSTCUDA) -I$(HOSTCUDA)/include -Itests/unit/tensor
TEST_OBJECTS_unit_cuda := $(HOST_KERNELS) $(call hostgpu,$(filter %_cuda.c,$(CUDA_SOURCES)))

# NCCL's and NVML's types are declared by those who load them; tests compare them with the headers, where there are.
$(BUILD)/obj/tests/unit/coll/backend/test_nccl.o $(BUILD)/obj/tests/unit/launch/hardware/test_nvml.o: CPPFLAGS += $(CUDA_HOME:%=-isystem %/include)

$(TEST_TOOLS): $(call objects,$(filter-out tests/lib/proc.c tests/lib/munged.c tests/lib/equal%,$(wildcard tests/lib/*.c)) $(call sources,tests/lib/cluster tests/lib/history tests/lib/many))
	@mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# $1 binary, $2 sources, $3 modules
define test_rule
$(BUILD)/tests/$1: $(call objects,$2 $(TEST_LIB)) $(TEST_OBJECTS_$1) $(TEST_TOOLS) $(call archives,$3)
	@mkdir -p $$(@D)
	$$(SAY) '  LD   $$@'
	$(Q)$(CC) $$(ALL_CFLAGS) $$^ $$(ALL_LDFLAGS) $(TEST_LINK) $(call libs,$3) -o $$@
endef
$(foreach m,$(UNIT_MODULES),$(eval $(call test_rule,unit_$m,$(call sources,$(call with_folders,tests/unit/$m)),$m $(TEST_USES_$m))))

UNITS := $(addprefix $(BUILD)/tests/unit_,$(UNIT_MODULES))
E2E := $(if $(wildcard tests/e2e/*.c),$(BUILD)/tests/e2e_all)
$(eval $(call test_rule,e2e_all,$(call sources,$(call with_folders,tests/e2e)),wire))
$(E2E): ALL_LDFLAGS += -ljansson -lutil
# Loaded into programs by end-to-end tests; never instrumented.
INTERPOSE := $(BUILD)/tests/interpose.so
$(INTERPOSE): $(wildcard tests/e2e/preload/*)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c17 -D_GNU_SOURCE $(WARN) -O2 -fPIC -shared $(filter %.c,$^) -o $@
# A driver and a device library of NVIDIA's that are none; never instrumented.
FAKECUDA := $(BUILD)/tests/fakecuda.so
$(FAKECUDA): tests/lib/fakecuda/fakecuda.c lib/tensor/plugin.h lib/tensor/op.def
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c17 -D_GNU_SOURCE $(WARN) -O2 -fPIC -shared -Ilib $< -o $@
$(BUILD)/tests/unit_tensor: | $(FAKECUDA)
# NVIDIA's management library for machines without a GPU; an older one has fewer functions.
FAKENVML := $(BUILD)/tests/fakenvml/libnvidia-ml.so.1 $(BUILD)/tests/fakenvml/old/libnvidia-ml.so.1
$(FAKENVML): tests/lib/fakenvml/fakenvml.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c17 -D_GNU_SOURCE $(WARN) -Wno-missing-prototypes $(if $(findstring /old/,$@),-DFAKENVML_OLD) -O2 -fPIC -shared $< -o $@
$(BUILD)/tests/unit_launch: | $(FAKENVML)
$(BUILD)/tests/e2e_all: | $(FAKENVML)
# What checks a GPU, without Criterion: it may be carried to where there is one (scripts/bench/gpu).
GPU_TESTS := $(BUILD)/tests/gpu_all
GPU_SOURCES := $(wildcard tests/gpu/*.c) tests/unit/exec/fixture.c tests/unit/exec/far.c tests/unit/exec/test_golden.c \
               tests/unit/tensor/kit.c tests/lib/mini/mini.c tests/lib/thread_ranks.c
$(GPU_TESTS): $(GPU_SOURCES) $(call archives,exec) $(STAMP)
	@mkdir -p $(@D)
	$(SAY) '  LD   $@'
	$(Q)$(CC) $(CPPFLAGS) -Itests/lib -Itests/lib/mini -Itests/unit/tensor $(ALL_CFLAGS) -Wno-pedantic -Wno-format-zero-length \
	    $(filter-out $(STAMP),$^) $(ALL_LDFLAGS) $(call libs,exec) -o $@
# A device and an NCCL without a GPU, loaded by unit tests in libnccl's place.
FAKENCCL := $(BUILD)/tests/fakenccl.so
$(FAKENCCL): $(filter-out %/cuda.c,$(wildcard tests/lib/fakenccl/*.[ch])) lib/base/number/dtype.c lib/base/assert.c lib/base/accel.h collectives/backend/nccl/nccl_types.h $(STAMP)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -fvisibility=default -shared -Wno-missing-prototypes $(filter %.c,$^) $(SAN_$(MODE)) -o $@
$(BUILD)/tests/unit_coll: | $(FAKENCCL)
# Programs of users, for the end-to-end tests: they see the public headers and the libraries alone.
USER_PROGRAMS := $(patsubst tests/e2e/programs/%.c,$(BUILD)/tests/programs/%,\
                   $(wildcard tests/e2e/programs/*.c))
$(BUILD)/tests/programs/%: tests/e2e/programs/%.c $(TRAIN_LIBRARY) $(LIBRARY) $(STAMP)
	@mkdir -p $(@D)
	$(Q)$(CC) -D_GNU_SOURCE $(ALL_CFLAGS) -Icollectives -Ilib -I. $< $(TRAIN_LIBRARY) $(LIBRARY) $(ALL_LDFLAGS) -lm -o $@
# The conformance of the unit tests as a program, for ranks that some launcher starts.
CONFORMANCE := $(BUILD)/tests/programs/conformance
CONFORMANCE_SOURCES := $(wildcard tests/e2e/conformance/*.c) \
                       $(patsubst %,tests/unit/coll/support/%.c,conform operation reference buffer layout shuffle)
$(CONFORMANCE): $(call objects,$(CONFORMANCE_SOURCES)) $(TEST_TOOLS) $(call archives,coll)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) $(call libs,coll) -o $@
# Workers that use the store of their round and record it, for tests/leaders and end-to-end tests.
TRAFFIC := $(BUILD)/tests/programs/store_traffic
$(TRAFFIC): $(call objects,$(call sources,tests/leaders/traffic)) $(TEST_TOOLS) $(call archives,wire)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) $(call libs,wire) -o $@
SIM := $(if $(wildcard tests/sim/*.c),$(BUILD)/tests/sim)
# The simulator counts the moves of the job and agent cores (tests/sim/coverage.c).
SIM_WRAP := -Wl,--wrap=ct_rdzv_set_phase,--wrap=ct_rdzv_set_member,--wrap=agent_enter,--wrap=agent_become
$(BUILD)/tests/sim: $(call objects,$(call sources,tests/sim)) $(TEST_TOOLS) $(call archives,agent)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) $(SIM_WRAP) $(call libs,agent) -o $@
SOAK := $(BUILD)/tests/soak
$(SOAK): $(call objects,$(call sources,tests/soak)) $(TEST_TOOLS) $(call archives,base)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) $(call libs,base) -o $@
LEADERS_TABLE := $(BUILD)/tests/leaders
$(LEADERS_TABLE): $(call objects,$(call sources,tests/leaders)) $(TEST_TOOLS) $(call archives,base)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) $(call libs,base) -o $@

MANY := $(BUILD)/tests/many
$(MANY): $(call objects,$(call sources,tests/many)) $(TEST_TOOLS) $(call archives,base)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) $(call libs,base) -o $@

BENCHES := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(wildcard tests/bench/*.c))
# What tells a weak peer of the benchmarks from a good one (tests/e2e/scripts/test_benches.c).
ifeq ($(MODE),release)
$(E2E): | $(BUILD)/bench/gemm
endif
$(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(TEST_TOOLS) $(call archives,$(MODULES))
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) $(call libs,$(MODULES)) -ldl -o $@

# What this compiler says of all tests, and NVIDIA's of CUDA's kernels; of the product scripts/lint tells it.
test_sources = $(call sources,$(call with_folders,$1))
CHECKS := $(call objects,$(foreach m,$(UNIT_MODULES),$(call test_sources,tests/unit/$m)) $(call test_sources,tests/e2e) \
            $(call sources,tests/lib tests/lib/cluster tests/lib/history tests/lib/many tests/sim tests/soak tests/leaders tests/many tests/bench)) \
          $(HOST_KERNELS) $(if $(HAS_CUDA),$(CUDA_OBJECTS))

# Fuzz targets are built with clang, everything they use instrumented: make CC=clang MODE=fuzz fuzzers
FUZZED := config wire tcpstore launch data train rdzv
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
$(BUILD)/fuzz/fuzz_rpc: $(call objects,collectives/ps/protocol.c)
$(patsubst %,$(BUILD)/fuzz/fuzz_%,service hub member): $(call objects,tests/fuzz/frames.c)
$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(TEST_TOOLS) $(call archives,$(FUZZED))
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(filter %.o,$^) $(filter %.a,$^) $(ALL_LDFLAGS) -fsanitize=fuzzer $(call libs,$(FUZZED)) -o $@

# ---- what one asks for --------------------------------------------------------------------------
.PHONY: units tests test torch programs unit/% lint warnings asan tsan fuzz fuzzers bench sim sim-large mutants soak leaders many coverage install
units: $(UNITS) ## build every unit test
tests: $(UNITS) $(E2E) $(if $(filter $(HOSTGPU_MODES),$(MODE)),$(HOSTGPU_ALL)) $(USER_PROGRAMS) $(CONFORMANCE) $(TRAFFIC) $(INTERPOSE) $(SIM) $(WHEEL_TESTED) all ## build every test
test: tests ## run every test of this mode
	scripts/run-tests $(BUILD)
torch: $(E2E) $(BUILD)/tests/unit_tcpstore all ## the tests with PyTorch, under PyPI's newest (5 GB, in TORCH_VENV)
	scripts/test-torch $(BUILD) $(or $(TORCH_VENV),build/torch-venv)
unit/%: $(BUILD)/tests/unit_% ## build and run one module's unit tests
	$<
lint: ## formatting, clang-tidy, cppcheck, shellcheck, directions, sizes
	scripts/lint
warnings: $(CHECKS) ## with CC=clang MODE=check DEV=1: its warnings of the tests are errors; nothing is linked
asan: ## every test under AddressSanitizer and UBSan
	+$(MAKE) MODE=asan test
tsan: ## the threaded modules under ThreadSanitizer
	scripts/tsan
fuzzers: $(FUZZERS)
fuzz: ## each fuzz target for SECONDS=20
	scripts/fuzz $(or $(SECONDS),20)
sim: $(SIM) ## the rendezvous simulator, SEEDS=2000 from FIRST=1
	$(SIM) --first $(or $(FIRST),1) --seeds $(or $(SEEDS),2000)
	$(SIM) --list tests/sim/seeds.txt
	$(SIM) --scenarios tests/sim/transcripts
sim-large: $(SIM) ## rounds of AGENTS=10000 simulated agents: what they cost
	$(SIM) --agents $(or $(AGENTS),10000)
mutants: ## each guard of the rendezvous removed: does the simulator notice? SEEDS=10000
	tests/sim/mutants $(or $(SEEDS),10000)
programs: $(BUILD)/tests/unit_coll ## PROGRAMS=10000 random programs of collectives on each backend (ON=ucx: on one), from seed FIRST=1
	$(if $(ON),CTRUN_PROGRAMS_ON=$(ON)) CTRUN_PROGRAMS=$(or $(PROGRAMS),10000) CTRUN_PROGRAMS_FIRST=$(or $(FIRST),1) $< --filter 'programs/*'
soak: $(SOAK) all ## an elastic training under random faults for SECONDS=300, SEED=the time; LEADERS=1: only who leads is killed
	$(SOAK) $(if $(LEADERS),--leaders) --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED)) --programs $(BUILD)/bin
leaders: $(LEADERS_TABLE) $(TRAFFIC) all ## the table of what the death of who leads costs, ARGS="--nodes 3 --fault kill" (root)
	$(LEADERS_TABLE) --programs $(BUILD)/bin $(ARGS)
many: $(MANY) all ## jobs of 17 to 256 ranks, on one node and on 24 to 64: a table, ARGS="--ranks 64 --nodes none" (root)
	$(MANY) --programs $(BUILD)/bin $(ARGS)
bench: all $(BENCHES) ## the benchmarks against peers (scripts/bench)
	scripts/bench/all $(BUILD)
coverage: ## lines that the tests reach
	scripts/coverage
install: all ## programs, headers, libraries, manual pages under PREFIX (DESTDIR respected)
	$(if $(filter aarch64,$(CROSS)),scripts/arm64 run) scripts/install $(BUILD) $(DESTDIR)$(PREFIX) $(LIBDIR)

ARM64_BUILD := build/aarch64-linux-gnu-gcc-release
.PHONY: arm64 arm64-check
arm64: ## programs, libraries and unit tests for arm64, by the cross compiler (scripts/deps --arm64)
	+$(MAKE) ARCH=arm64 CUDA=0 all units
arm64-check: all ## unit tests for arm64 under qemu (those of the table in scripts/arm64), the digits' bits on both
	+$(MAKE) ARCH=arm64 CUDA=0 all $(addprefix $(ARM64_BUILD)/tests/unit_,$(shell scripts/arm64 tested))
	scripts/arm64 check $(ARM64_BUILD)
	scripts/arm64 same-bits $(ARM64_BUILD) $(BUILD)

.PHONY: versions-check
versions-check: all ## the previous release's programs, this tree's and a later protocol's in pairs (root; PREVIOUS=TAG)
	scripts/versions $(PREVIOUS)

.PHONY: wheel
wheel: $(SHARED) $(WHEEL_PROGRAMS) ## build/wheel/ctrun-*.whl for pip install: the Python package, the library, the programs
	scripts/package/wheel $(BUILD) build/wheel

DEB := build/deb$(if $(filter aarch64,$(CROSS)),-arm64)
.PHONY: deb deb-check image
deb: ## build/deb/*.deb: ctrun (with ctrund as a service), libctrun1, libctrun-dev; ARCH=arm64: build/deb-arm64/*.deb (root)
	scripts/package/deb $(DEB) $(if $(filter aarch64,$(CROSS)),-aarm64)
deb-check: deb ## they are installed in a bare Debian 12, used, served by a real systemd, and purged (root; network for apt)
	scripts/package/deb-check $(DEB)
image: deb ## localhost/ctrun:VERSION and build/deb/ctrun-image.tar, with buildah
	scripts/package/image build/deb
.PHONY: page-check
page-check: all ## the status page in a real Chromium: pictures, contrast, keyboard, without scripts (apt install chromium)
	scripts/monitoring/page_check $(BUILD)

.PHONY: k8s-check
k8s-check: all ## manifests of `ctrun k8s` against Kubernetes' schemas (PyPI's kubernetes-validate, in build/k8s-venv)
	scripts/package/k8s-check $(BUILD) build/k8s-venv

.PHONY: print-modules
print-modules: # MODULE:FOLDERS:DEPENDENCIES, and so of programs, for scripts/lint
	@$(foreach m,$(MODULES),echo '$m:$(DIRS_$m):$(DEPS_$m)';)
	@$(foreach p,$(PROGRAMS),echo '$p:$(call folders,$p):$(call closure,$(USES_$p))';)
.PHONY: print-warnings
print-warnings: # for clang-tidy
	@echo '$(WARN)'

.PHONY: clean
clean: ## remove what was built in this mode
	rm -rf $(BUILD)

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9/%-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/:.*## /\t/' | expand -t 20

-include $(shell find $(BUILD)/obj $(BUILD)/pic $(BUILD)/hostcuda -name '*.d' 2>/dev/null)
