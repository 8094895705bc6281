# A thin front to scripts/ and CMake. JOBS=N sets the parallelism.
JOBS ?= $(shell nproc)

.DEFAULT_GOAL := build
.PHONY: help setup build cuda test demo sanitize tsan check format clean

help:
	@echo "make build     get the dependencies, build everything: the command is build/plimsoll (the default)"
	@echo "make cuda      build, and insist on the library for NVIDIA GPUs (it is built where a CUDA toolkit is found)"
	@echo "make test      build, check the sources, run the tests"
	@echo "make demo      build only the command and what the demo runs, run the demo"
	@echo "make sanitize  build with address and undefined-behaviour checks, run the tests"
	@echo "make tsan      build the input pipeline with the thread sanitizer, run its tests"
	@echo "make check     check the sources only"
	@echo "make format    apply clang-format"
	@echo "make clean     remove the build folders"

setup:
	@scripts/setup

build: setup
	@$(MAKE) -s --no-print-directory build/build.ninja
	cmake --build build -j $(JOBS)

cuda: setup
	cmake --preset release -DPLIMSOLL_CUDA=ON
	cmake --build build -j $(JOBS)

test: build
	scripts/check
	ctest --preset release -j $(JOBS)

demo: setup
	@$(MAKE) -s --no-print-directory build/build.ninja
	cmake --build build -j $(JOBS) --target plimsoll_exe examples_streaming_images
	scripts/demo

sanitize: setup
	@$(MAKE) -s --no-print-directory build-sanitize/build.ninja
	cmake --build build-sanitize -j $(JOBS)
	build-sanitize/plimsoll_tests --gtest_brief=1  # one process: each start under the sanitizer costs a second

# The tests of the input pipeline under the thread sanitizer: they use threads of their own, whereas libgomp's barriers
# would read as races.
tsan: setup
	cmake --preset tsan
	cmake --build build-tsan -j $(JOBS) --target plimsoll_data_tests
	build-tsan/plimsoll_data_tests --gtest_brief=1 --gtest_filter='Dataset*:Shuffle*:Position*:Ledger*:Threads*:Cache*:Snapshot*:Buckets*:Tokens*:Pack*:Faults*:TfRecordDataset*:TextLines*:CsvDataset*:TarDataset*:Cifar*:Image*:Region*:Resize*:Jpeg*:Png*:Damage*:FailedElements*:RandomPipelines*:Csv*'

check: setup
	scripts/check

format: setup
	scripts/format

clean:
	rm -rf build build-cuda build-sanitize build-tsan build-apart

# Ninja itself configures again when a CMake file or the list of sources changes, but does not know
# the presets.
build/build.ninja: CMakePresets.json
	cmake --preset release
	@touch $@

build-sanitize/build.ninja: CMakePresets.json
	cmake --preset sanitize
	@touch $@
