#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# boot.sh: boots the kernel in QEMU and runs a command there as root.
#
#   boot.sh [OPTION]... [-- COMMAND...]      without a command: a shell
#
#   --plain        QEMU with our initramfs (the default)
#   --vng          virtme-ng
#   --kernel DIR   the kernel build directory (default: ours, built if need be)
#   --cpus N       processors (2)
#   --mem M        memory in MiB ($BID_MEM, or 1536)
#   --append STR   more kernel command line, after $BID_APPEND
#   --timeout S    seconds until the guest is given up (900; 0: never), times
#                  $BID_SLOWER if that is set
#   --share DIR    a directory of the host, writable, at /mnt/host
#   --qemu ARGS    more arguments for QEMU (plain way)
#   --icount       the guest's clock counts instructions, a nanosecond each, on one
#                  processor (plain way): what is timed there repeats
#   --nmi S        an NMI from outside every S seconds, of which there may be a
#                  fraction (plain way)
#   --one-thread   emulates the processors by turns (plain way): slower, but what
#                  patches the kernel's text cannot find them in disagreement
#   --log FILE     where the kernel's messages go (default: in the cache's logs)
#   --quiet        says nothing but what the command says
#
# The guest's root is the root file system, with whatever is written to it kept
# in memory. The exit code is the command's; 124 when the time is up; 125 when
# the guest did not get as far as an exit code, or the kernel reported a bug.

. "$(dirname "$0")/lib.sh"

way=plain cpus=2 mem=${BID_MEM:-1536} append=${BID_APPEND:-} limit=900 share='' quiet='' kernel='' log='' accel='' qemu='' icount='' one_thread='' nmi=''
while [ $# -gt 0 ]; do
	case $1 in
	--plain | --vng) way=${1#--} ;;
	--quiet) quiet=1 ;;
	--kernel) kernel=$2 && shift ;;
	--cpus) cpus=$2 && shift ;;
	--mem) mem=$2 && shift ;;
	--append) append+=" $2" && shift ;;
	--timeout) limit=$2 && shift ;;
	--share) share=$2 && shift ;;
	--log) log=$2 && shift ;;
	--qemu) qemu=$2 && shift ;;
	--icount) icount=1 ;;
	--nmi) nmi=$2 && shift ;;
	--one-thread) one_thread=1 ;;
	--accel) accel=$2 && shift ;; # for the probe alone
	--) shift && break ;;
	*) die "boot.sh: unknown option '$1'" ;;
	esac
	shift
done
limit=$((limit * ${BID_SLOWER:-1}))
[ -z "$share" ] || [ -d "$share" ] || die "boot.sh: no directory $share"

root=$("$TOP/scripts/rootfs.sh")
[ -n "$kernel" ] || kernel=$("$TOP/scripts/kernel.sh" build)
image=$kernel/out/arch/x86/boot/bzImage
[ -f "$image" ] || die "boot.sh: no kernel image $image"
# Not pruned while it is in use.
exec {kernel_fd}>"$LOCKS/${kernel##*/}"
flock -s "$kernel_fd"

control=$(mktemp -d)
trap 'rm -rf -- "$control" "$control.pipe"' EXIT
log=${log:-$LOGS/guest-$(date +%H%M%S)-$$.log}
: >"$log"
find "$LOGS" -name 'guest-*.log' -mtime +3 -delete

kernel_release() { cat "$kernel/out/include/config/kernel.release"; }
tell() { [ -n "$quiet" ] || say "$@"; }

# The initramfs of the plain way: busybox and our /init.
make_initramfs() {
	# shellcheck disable=SC2016
	"$TOP/scripts/enter.sh" -r "$TOP/scripts/guest:/bid/guest" -b "$1:/bid/out" -- sh -ec '
		mkdir -p /tmp/i/bin /tmp/i/dev /tmp/i/proc /tmp/i/sys
		cp /bin/busybox /tmp/i/bin/
		cp /bid/guest/init /tmp/i/init
		chmod 755 /tmp/i/init
		mknod /tmp/i/dev/console c 5 1
		cd /tmp/i && find . | cpio --quiet -o -H newc | gzip -9 >/bid/out/initramfs'
}

need_initramfs() {
	initramfs=$CACHE/initramfs-${root##*-}-$(key "$TOP/scripts/guest/init")
	[ -d "$initramfs" ] || locked initramfs build_dir "$initramfs" make_initramfs
}

# kvm where a guest is known to come up with it, tcg elsewhere. That /dev/kvm is
# there proves nothing: a guest is booted once, and the answer remembered.
need_accel() {
	local memo
	[ -z "$accel" ] || return 0
	accel=tcg
	# Only emulation counts.
	[ -z "$icount" ] || return 0
	[ -w /dev/kvm ] || return 0
	memo=$CACHE/accel-$(cat /etc/machine-id /proc/sys/kernel/random/boot_id <(echo "${root##*/}") 2>/dev/null |
		sha256sum | cut -c1-16)
	if [ ! -e "$memo" ]; then
		tell "trying whether KVM works here (20 s at most)"
		if "$0" --quiet --plain --accel kvm --timeout 20 --kernel "$kernel" --cpus 1 -- true \
			>"$LOGS/kvm-probe.log" 2>&1; then
			echo kvm >"$memo.$$"
		else
			echo tcg >"$memo.$$"
		fi
		mv "$memo.$$" "$memo"
	fi
	accel=$(cat "$memo")
}

write_control() {
	local rows columns
	cp "$TOP/scripts/guest/run" "$control/run"
	printf 'INTERACTIVE=%s\nDIR=%s\n' "$interactive" "$([ -n "$share" ] && echo /mnt/host || echo /root)" >"$control/env"
	if [ "$interactive" = 1 ]; then
		# The terminal on the other side of the port has no size of its own.
		read -r rows columns < <(stty size 2>/dev/null || echo 24 80)
		printf 'stty rows %s cols %s\nexec bash -i\n' "$rows" "$columns" >"$control/command"
	else
		printf '%q ' exec "$@" >"$control/command"
	fi
}

# Sets COMMAND: QEMU with our initramfs, inside the root file system.
plain_command() {
	local cpu=max,la57=off threads=,thread=multi io options
	[ -z "$one_thread" ] || threads=,thread=single
	[ "$accel" = tcg ] || cpu=host threads=
	if [ -n "$icount" ]; then
		threads=,thread=single cpus=1 qemu="$qemu -icount shift=0"
	fi
	if [ "$interactive" = 1 ]; then
		io="-chardev stdio,id=io,mux=on,signal=off -device virtconsole,chardev=io"
	else
		# Not stdio: at the end of its input, it would be closed for output, too.
		io="-chardev file,id=io,path=/proc/self/fd/1 -device virtserialport,name=bid.output,chardev=io"
	fi
	options="-nodefaults -no-user-config -display none -no-reboot
		-machine q35 -cpu $cpu -accel $accel$threads -smp $cpus -m $mem
		-serial file:/bid/log -device virtio-rng-pci -device virtio-serial-pci $io
		$(share_9p root /bid/rootfs ,readonly=on) $(share_9p control /bid/control)
		${share:+$(share_9p host /mnt/host)}
		-kernel /bid/boot/bzImage -initrd /bid/initramfs/initramfs $qemu"
	if [ -n "$nmi" ]; then
		mkfifo "$control/monitor.in" "$control/monitor.out"
		options+=" -monitor pipe:/bid/control/monitor"
	fi
	need_initramfs
	read -r -d '' -a options <<<"$options" || true
	COMMAND=("$TOP/scripts/enter.sh" "${binds[@]}" -r "$initramfs:/bid/initramfs" -b "$log:/bid/log" --
		qemu-system-x86_64 "${options[@]}"
		-append "console=ttyS0 panic=-1 oops=panic tsc=reliable no_timer_check log_buf_len=4M ${share:+bid.share }$append")
}

share_9p() { # share_9p TAG PATH [MORE-OPTIONS]
	echo "-fsdev local,id=$1,path=$2,security_model=none,multidevs=remap${3:-}" \
		"-device virtio-9p-pci,fsdev=$1,mount_tag=$1"
}

# Sets COMMAND: virtme-ng, whose guest has what enter.sh shows as its root.
vng_command() {
	local options=(--run /bid/boot/bzImage --verbose --user root --cpus "$cpus" --memory "${mem}M"
		--append "root=/dev/root oops=panic tsc=reliable $append" --rwdir=/bid/control)
	[ "$accel" != tcg ] || options+=(--disable-kvm "--qemu-opts=-cpu max,la57=off")
	[ -z "$share" ] || options+=(--rwdir=/mnt/host)
	[ "$interactive" = 1 ] ||
		options+=(-- '. /bid/control/env; ln -sf /proc/self/fd/1 /dev/stdout; cd "$DIR" && { bash /bid/control/command 2>&1 </dev/null; echo $? >/bid/control/rc; } | cat; sync')
	COMMAND=("$TOP/scripts/enter.sh" "${binds[@]}" -- vng "${options[@]}")
}

# Until it is killed: has the emulator's monitor send NMIs. Before the kernel runs,
# nobody could take one.
send_nmis() {
	exec <>"$control/monitor.out" >"$control/monitor.in"
	until grep -qa 'Run /init' "$log"; do sleep 0.5; done
	while sleep "$nmi"; do
		echo nmi
		# What the monitor says has to go somewhere.
		while read -r -t 0.01; do :; done
	done
}

# Runs COMMAND with the time limit; what is interrupted here does not live on.
# The emulator makes its output non-blocking, so it gets a pipe of its own.
run_guest() {
	local rc=0 pid reader sender=
	mkfifo "$control.pipe"
	cat <"$control.pipe" &
	reader=$!
	timeout --kill-after=5 "$limit" "${COMMAND[@]}" </dev/null >"$control.pipe" 2>"$errors" &
	pid=$!
	if [ -n "$nmi" ]; then
		send_nmis &
		sender=$!
	fi
	trap 'kill "$pid" $sender; exit 130' INT TERM
	wait "$pid" || rc=$?
	trap - INT TERM
	# It may have ended with the emulator already.
	[ -z "$sender" ] || kill "$sender" 2>/dev/null || true
	wait "$reader"
	return $rc
}

# What should not be in the kernel's log.
TROUBLE='Kernel panic|BUG:? |Oops|WARNING: |INFO: |general protection fault|UBSAN:|ODEBUG:'
TROUBLE+='|pagealloc: |panicked at|kmemleak: [0-9]+ new|kmemleak: .*disabled|KFENCE'
TROUBLE=${BID_TROUBLE:-$TROUBLE}
# How long a handler takes in an emulated processor says nothing about it.
NO_TROUBLE='INFO: NMI handler .* took too long to run'
# kernel_trouble GREP-OPTION... : what there is of it.
kernel_trouble() { tr -d '\r' <"$log" | grep -avE "$NO_TROUBLE" | grep -aE "$@" "$TROUBLE" || true; }

fail_guest() {
	printf 'error: %s\n  kernel log: %s\n' "$1" "$log" >&2
	[ ! -s "$errors" ] || [ "$errors" = "$log" ] || sed 's/^/  emulator: /' "$errors" >&2
	[ -z "$trouble" ] || kernel_trouble -m3 -A40 | head -n 130 | sed 's/^/  kernel: /' >&2
	exit "$2"
}

interactive=0
[ $# -gt 0 ] || interactive=1
need_accel
write_control "$@"
binds=(-r "$kernel/out/arch/x86/boot:/bid/boot" -b "$control:/bid/control")
[ -z "$share" ] || binds+=(-b "$share:/mnt/host")
errors=$control/errors
: >"$errors"
tell "booting $(kernel_release) ($way, $accel, $cpus processors, $mem MiB); kernel log: $log"
started=$SECONDS
rc=0
"${way}_command"
if [ "$interactive" = 1 ]; then
	tell "a shell in the guest; 'exit' or Ctrl-A X leaves it"
	"${COMMAND[@]}" || rc=$?
	exit "$rc"
fi
[ "$way" = plain ] || errors=$log
run_guest || rc=$?
trouble=$(kernel_trouble -m1)
[ "$rc" != 124 ] && [ "$rc" != 137 ] ||
	fail_guest "the guest did not finish within $limit s${trouble:+; its kernel said: $trouble}" 124
[ -s "$control/rc" ] ||
	fail_guest "the guest stopped before its command did${trouble:+: $trouble}" 125
[ -z "$trouble" ] || fail_guest "the guest's kernel reported: $trouble" 125
rc=$(cat "$control/rc")
tell "the guest ended after $((SECONDS - started)) s with exit code $rc"
exit "$rc"
