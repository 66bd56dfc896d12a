# SPDX-License-Identifier: GPL-2.0
#
# Reads KTAP (a kernel log of KUnit, or kselftest's output) and prints one line
# per test: "pass|fail|skip<TAB>name<TAB>why". Only leaves count; a parent counts
# when it failed though none of its children did, and so does each test that a
# plan announced and that never reported. `prefix` goes before each name. What a
# failed test printed goes to the file `details`.

BEGIN { deepest = 0 }

function emit(what, name, why) {
	printf "%s\t%s%s\t%s\n", what, prefix, name, why
	total++
}

function flush_children(level, parent,   i, n, lost) {
	n = count[level + 0]
	for (i = 1; i <= n; i++)
		emit(kind[level, i], parent names[level, i], reason[level, i])
	lost = (level in plan) ? plan[level] - results[level] : 0
	if (lost > 0)
		emit("fail", parent "(missing)", lost " of " plan[level] " planned tests never reported")
	count[level] = 0
	results[level] = 0
	delete plan[level]
	return lost
}

function keep(level, what, name, why) {
	count[level]++
	kind[level, count[level]] = what
	names[level, count[level]] = name
	reason[level, count[level]] = why
}

{
	sub(/\r$/, "")
	line = $0
	sub(/^(<[0-9]+>)?\[ *[0-9]+\.[0-9]+\](\[ *[TC][0-9]+\])? ?/, "", line)
	said = said line "\n"
	level = 0
	while (match(line, /^(    |# )/)) {
		line = substr(line, RLENGTH + 1)
		level++
	}
}

line ~ /^1\.\.[0-9]+/ {
	split(line, parts, /\.\.| /)
	plan[level] = parts[2] + 0
	if (level > deepest)
		deepest = level
	next
}

line ~ /^(not )?ok [0-9]+/ {
	what = line ~ /^not / ? "fail" : "pass"
	sub(/^(not )?ok [0-9]+ *(- )?/, "", line)
	why = ""
	bad = 0
	if (match(line, /# *(SKIP|skip|Skip)[a-zA-Z]*:? */)) {
		why = substr(line, RSTART + RLENGTH)
		line = substr(line, 1, RSTART - 1)
		if (what == "pass")
			what = "skip"
	} else if (match(line, /# *(TIMEOUT|exit=|XFAIL).*/)) {
		why = substr(line, RSTART + 2)
		if (why ~ /XFAIL/)
			what = "pass"
		line = substr(line, 1, RSTART - 1)
	} else if (match(line, / # /)) {
		line = substr(line, 1, RSTART - 1)
	}
	sub(/ +$/, "", line)
	if (line == "") {
		line = why
		why = ""
	}
	results[level]++
	if (level > deepest)
		deepest = level

	# Children that are waiting for their parent's name?
	if (results[level + 1] > 0 || ((level + 1) in plan)) {
		bad = 0
		for (i = 1; i <= count[level + 1]; i++)
			bad += kind[level + 1, i] == "fail"
		for (i = 1; i <= count[level + 1]; i++)
			keep(level, kind[level + 1, i], line "." names[level + 1, i], reason[level + 1, i])
		lost = ((level + 1) in plan) ? plan[level + 1] - results[level + 1] : 0
		none = results[level + 1] == 0
		if (lost > 0 && what != "skip") {
			keep(level, "fail", line, lost " of " plan[level + 1] " planned tests never reported")
			bad++
		}
		if ((what == "fail" && !bad) || none)
			keep(level, what, line, why)
		count[level + 1] = 0
		results[level + 1] = 0
		delete plan[level + 1]
	} else {
		keep(level, what, line, why)
	}
	if (what == "fail" && details && !bad)
		printf "--- %s%s\n%s\n", prefix, line, said > details
	said = ""
}

END {
	for (level = deepest; level >= 0; level--)
		flush_children(level, "")
	if (!total)
		emit("fail", "(none)", "no test reported")
}
