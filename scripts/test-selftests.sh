#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-selftests.sh: tools/testing/selftests/perf_events in the guest: all of it
# in guests booted the plain way, two programs in one booted with virtme-ng. Run by
# test.sh; with BID_PROGRAMS="NAME..." these alone.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

# An emulated processor is an order of magnitude slower than a real one, and the machine
# may be busy.
TIMEOUT=$((${SELFTEST_TIMEOUT:-900} * ${BID_SLOWER:-1}))

share=$(mktemp -d)
trap 'rm -rf -- "$share"' EXIT
kernel=$("$TOP/scripts/kernel.sh" build)
"$TOP/scripts/programs.sh" selftests "$kernel" "$share/kselftest"

nothing_left() { cat "$share/left" && rm -- "$share/left" && ! grep -vq ' 0$' "$LOG"; }

# Of run(), whose variables it uses.
run_in_guest() {
	guest "$LOGS/selftests-$name-kernel.log" "${way[@]}" --kernel "$kernel" --share "$share" \
		--timeout "$limit" --append hugepages=8 -- sh ./run -o "$TIMEOUT" "$@" >"$log" 2>&1
}

# run WAY NAME LIMIT KSELFTEST-ARGUMENT... , WAY being options of boot.sh
run() {
	local way name=$2 limit=$3 log=$LOGS/selftests-$2.log rc=0
	read -r -a way <<<"$1"
	shift 3
	say "$PART: $name"
	follow "$log" '^(not )?ok [0-9]+ selftests:' run_in_guest "$@" || rc=$?
	ktap "$log" "$name: "
	[ ! -e "$share/no-pmu" ] || skip "$name: remove_on_exec" "it wants a hardware counter, and the guest has none"
	rm -f -- "$share/no-pmu"
	check "$name: nothing is left of the events" nothing_left
	# That a test failed is counted above.
	if [ "$rc" -ge 124 ]; then
		fail "$name: the guest" "exit code $rc" "$log"
	else
		pass "$name: the guest comes up and ends"
	fi
}

# One of the kernel's own tests has no way to skip itself.
cat >"$share/run" <<'GUEST'
case " $* " in
*" -t "*) ;;
*)
	if [ ! -e /sys/bus/event_source/devices/cpu ]; then
		: >/mnt/host/no-pmu
		set -- -S perf_events:remove_on_exec "$@"
	fi
	;;
esac
# A PREEMPT_RT kernel cannot ask a file for its ID while a sample is taken. A program that
# wants samples of itself resolved has to be, with its libraries, where the kernel knows
# the IDs already: on tmpfs, not on 9p.
case $(uname -v) in
*PREEMPT_RT*)
	program=/mnt/host/kselftest/perf_events/bid_sample
	ldd "$program" | grep -o '/[^ ]*' | xargs touch
	cp "$program" /tmp/ && mount --bind /tmp/bid_sample "$program"
	;;
esac
rc=0
/mnt/host/kselftest/run_kselftest.sh "$@" || rc=$?
# Buffers are freed, and events of the last tasks closed, a moment after.
state=/sys/kernel/debug/perf_build_id_offset/state
tries=0
while grep -q ' [1-9]' $state && [ $((tries += 1)) -le 10 ]; do sleep 1; done
cat $state >/mnt/host/left
exit $rc
GUEST

# The sample program prints where it was: build IDs, each 40 digits here.
sample_program() {
	cp "$kernel/out/samples/perf_events/build_id_offset" "$share/sample" &&
		"$TOP/scripts/boot.sh" --quiet --kernel "$kernel" --share "$share" -- ./sample >"$share/said" &&
		cat "$share/said" && grep -qE '^[0-9a-f]{40} 0x[0-9a-f]+$' "$share/said"
}

# On a kernel of another kind, a few programs may have to do.
if [ -n "${BID_PROGRAMS:-}" ]; then
	programs=()
	for program in $BID_PROGRAMS; do programs+=(-t "perf_events:$program"); done
	run --plain "${BID_FLAVOUR:-plain}" 3600 "${programs[@]}"
	exit
fi

others=(-S perf_events:bid_fuzz)
if [ "${BID_SLOWER:-1}" -gt 1 ]; then
	others+=(-S perf_events:sigtrap_threads)
	skip "plain: sigtrap_threads" "its time limits are for a kernel that is not slower by design"
fi
run --plain plain 3600 "${others[@]}"
# Calls at random find what there is one day or another: with BID_FUZZ=1 and in
# test-debug, not in every run. What patches the kernel's text all the time would trip
# over that with emulated processors that run at the same time.
[ -z "${BID_FUZZ:-}" ] || run "--plain --one-thread" alone 600 -t perf_events:bid_fuzz
run --vng vng 1200 -t perf_events:bid_open -t perf_events:bid_selfcheck
# NMIs that come from outside of the guest, at any time.
nmis_from_outside() {
	"$TOP/scripts/boot.sh" --quiet --one-thread --kernel "$kernel" --share "$share" --nmi 0.05 -- \
		/mnt/host/kselftest/perf_events/bid_context -t nmis_from_outside | tee "$share/said" &&
		grep -q '^ok 1 many.nmis_from_outside$' "$share/said"
}

# The kernel's sample prints the stack of whoever opens its device, with the
# cookie that was promised in the open.
unwind_sample() {
	"$TOP/scripts/boot.sh" --quiet --kernel "$kernel" -- \
		sh -c 'true </dev/rust-unwind && dmesg' >"$share/said" || return
	grep rust_unwind "$share/said"
	promised=$(sed -n 's/.*rust_unwind: the stack will come with cookie //p' "$share/said")
	[ -n "$promised" ] && grep -q "rust_unwind: cookie $promised: [1-9][0-9]* frames" "$share/said"
}

check "the sample program" sample_program
check "the unwinding sample" unwind_sample
check "NMIs from outside" nmis_from_outside
