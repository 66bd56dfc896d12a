#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# panics.sh OBJECT FUNCTIONS: the ways into a panic that a Rust object has. Runs
# inside the root file system.
#
# Whatever panics ends in an undefined symbol of the crate core (not all of them
# have "panic" in their names). Prints "FUNCTION -> SYMBOL" for each relocation
# against one, from functions whose names match the regular expression FUNCTIONS
# and that are no tests. Formatting alone does not panic and is let pass.

set -euo pipefail

suspects=$(llvm-nm -u -C "$1" | sed 's/^ *U //' |
	grep -E '^<?core::|rust_begin_unwind|rust_panic|rust_eh_personality' | grep -vE '^<?core::fmt::| as kernel::' || true)
# Names only: one function's disassembly tells its relocations.
llvm-objdump -dr -C --no-show-raw-insn "$1" | awk -v suspects="$suspects" -v functions="$2" '
	BEGIN {
		n = split(suspects, list, "\n")
		for (i = 1; i <= n; i++)
			suspect[list[i]] = 1
	}
	/^[0-9a-f]+ <.*>:$/ {
		name = $0
		sub(/^[0-9a-f]+ </, "", name)
		sub(/>:$/, "", name)
		looked = name ~ functions && name !~ /::tests::|^<?core::panicking::/
		seen += looked
	}
	looked && /R_[A-Z0-9_]+\t/ {
		target = $0
		sub(/.*R_[A-Z0-9_]+\t/, "", target)
		sub(/[-+]0x[0-9a-f]+$/, "", target)
		if (target in suspect && !told[name, target]++)
			print name " -> " target
	}
	END {
		print seen + 0 " functions looked at" >"/dev/stderr"
		if (!seen && functions == ".")
			exit 1
	}'
