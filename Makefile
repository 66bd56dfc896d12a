# SPDX-License-Identifier: GPL-2.0
#
# The front door: every job is a target. `make help` lists them.

.DEFAULT_GOAL := help
SHELL := /bin/bash
BOOT ?= plain
KDIR ?=

export BID_CACHE DEBIAN_MIRROR JOBS

# A target that works on a builder's own tree.
need-kdir = $(if $(KDIR),,$(error say which kernel tree: make $@ KDIR=/path/to/linux))

.PHONY: help setup apply unapply kernel boot demo bench bench-kernel series clean \
	test test-host test-static test-kunit test-selftests test-oracle test-differential \
	test-record test-fuzz test-series test-debug test-kcsan test-preempt

help: ## this list
	@echo 'The main job, and all tests (both set up what they need):'
	@echo '  make demo            records real programs and prints a symbolized profile'
	@echo '  make test            runs every test'
	@echo
	@echo 'Targets:'
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | \
		while IFS=$$'\t' read -r name text; do printf '  %-17s %s\n' "$$name" "$$text"; done
	@echo
	@echo 'Variables:'
	@echo '  KDIR=DIR         your own kernel tree, for apply, unapply and kernel; built with'
	@echo '                   your own tools. Only apply and unapply change it'
	@echo '  BOOT=plain|vng   how boot starts the guest: QEMU with our initramfs, or virtme-ng'
	@echo '  CPUS=N MEM=M     processors and MiB of the guest (2, 1536)'
	@echo '  APPEND="..."     more kernel command line for boot'
	@echo '  JOBS=N           parallel jobs of builds (all processors)'
	@echo '  BID_CACHE=DIR    where everything is kept (~/.cache/perf-build-id-offset)'
	@echo '  DEBIAN_MIRROR=URL  the Debian archive (else what apt uses on this machine)'

setup: ## makes the root file system and unpacks the kernel; says what is missing
	@scripts/setup.sh

apply: ## puts the overlay into the kernel tree KDIR
	$(need-kdir)@scripts/overlay.sh apply '$(KDIR)'

unapply: ## takes it out of the kernel tree KDIR again
	$(need-kdir)@scripts/overlay.sh unapply '$(KDIR)'

kernel: ## builds the kernel: stock and overlay from the cache, or the tree KDIR
	@$(if $(KDIR),scripts/kernel.sh host '$(KDIR)',scripts/setup.sh && scripts/kernel.sh build)

boot: ## a shell in the guest (BOOT=vng: with virtme-ng)
	@scripts/setup.sh
	@scripts/boot.sh --$(BOOT) $(if $(CPUS),--cpus $(CPUS)) $(if $(MEM),--mem $(MEM)) \
		$(if $(APPEND),--append '$(APPEND)')

demo: ## records real programs in the guest and prints a symbolized profile
	@scripts/setup.sh
	@scripts/demo.sh

test: ## every test; the last line counts them
	@scripts/setup.sh
	@scripts/test.sh

test-host: ## tests that need no kernel: the tools, the scripts, apply and unapply
test-static: ## the kernel side: warnings, clippy, format, checkpatch, panic paths, option off
test-kunit: ## the KUnit suites in the guest
test-selftests: ## the kselftest programs in the guest, both ways of booting
test-oracle: ## every frame of real programs against an independent computation
test-differential: ## perf-bid against stock perf, on ordinary recordings
test-record: ## what the options of perf-bid record do, in the guest
test-fuzz: ## hostile inputs for perf-bid, made by libFuzzer (FUZZ_SECONDS=N: longer)
test-series: ## each step of the series builds (slow; no part of test)
test-debug: ## all of it on a kernel that looks for mistakes (slow; no part of test; PARTS="calls": some of it)
test-kcsan: ## the tests of samples on a kernel that looks for data races (slow; no part of test)
test-preempt: ## kernels of other preemption models build, boot and sample (slow; no part of test)
test-host test-static test-kunit test-selftests test-oracle test-differential test-record test-fuzz \
test-series test-debug test-kcsan test-preempt:
	@scripts/setup.sh
	@scripts/test.sh $(@:test-%=%)

bench-kernel: ## what a sample costs, beside BPF, stock perf and the stock kernel (PARTS="ours shares": some of it)
	@scripts/setup.sh
	@scripts/bench-kernel.sh $(PARTS)

bench: ## times perf-bid and stock perf on the same files (QUICK=1: fewer of them)
	@scripts/setup.sh
	@scripts/bench.sh $(if $(QUICK),quick)

series: ## writes the git am-able patch series to build/series
	@scripts/setup.sh
	@scripts/series.sh build/series

clean: ## removes what was built in the checkout (the cache stays; see README.md)
	rm -rf build
