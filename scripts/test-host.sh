#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-host.sh: what needs no kernel: the tools' own tests, clippy and format,
# the shell scripts, apply and unapply. Run by test.sh.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

cargo() { "$TOP/scripts/cargo.sh" "$@"; }

# Each test that cargo ran is one of ours.
cargo_tests() {
	local log=$LOGS/host-cargo-test.log rc=0
	say "$PART: cargo test"
	cargo test --workspace --locked --no-fail-fast >"$log" 2>&1 </dev/null || rc=$?
	awk -v part="$PART" '
		/^ *Running |^ *Doc-tests / { crate = $2 == "unittests" ? $3 " " $4 : $2; sub(/ *\(.*/, "", crate) }
		/^test .* \.\.\. (ok|FAILED|ignored)/ {
			what = /\.\.\. ok/ ? "pass" : /\.\.\. FAILED/ ? "fail" : "skip"
			name = $0
			sub(/^test /, "", name)
			why = what == "skip" && name ~ /ignored, / ? name : ""
			sub(/.*ignored, /, "", why)
			sub(/ (- should panic )?\.\.\. .*/, "", name)
			printf "%s\t%s: cargo test %s: %s\t%s\n", what, part, crate, name, why
		}' "$log" >>"$RESULTS"
	[ "$rc" = 0 ] || fail "cargo test" "exit code $rc" "$log"
}

overlay_tests() {
	local log=$LOGS/host-overlay.log
	say "$PART: apply and unapply"
	"$TOP/scripts/test-overlay.sh" "$("$TOP/scripts/kernel.sh" source)" >"$log" 2>&1 || true
	ktap "$log" "overlay: "
}

ktap_tests() {
	local name
	for name in nested flat; do
		awk -v prefix=p: -v details=/dev/null -f "$TOP/scripts/ktap.awk" "$TOP/scripts/ktap-$name.in" |
			diff -u "$TOP/scripts/ktap-$name.out" - || return
	done
}

scripts=("$TOP"/scripts/*.sh "$TOP/.ci/run")

check "ktap.awk" ktap_tests
need shellcheck shellcheck
check "shellcheck" shellcheck -s bash "${scripts[@]}"
check "shellcheck, guest" shellcheck -s sh -e SC1091,SC3045 "$TOP/scripts/guest/init" "$TOP/scripts/guest/run"
overlay_tests
check "perf-bid: rustfmt" cargo fmt --all --check
check "perf-bid: clippy" cargo clippy --workspace --all-targets --locked -- -D warnings
cargo_tests
