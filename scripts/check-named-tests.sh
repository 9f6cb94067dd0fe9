#!/usr/bin/env bash
# Checks that every line of "Easy to get wrong" in lib/README.md names a test that exists: `test_file: case`, a bare `case` of the file that
# was named before it, or `test_file` as a whole. Each line must name at least one case. A case is a TEST(case) of tests/unit/test_file.c.
set -euo pipefail
cd "$(dirname "$0")/.."
awk -F'|' '
function has(file, word,   line, found) {
    found = 0
    while ((getline line < file) > 0) if (index(line, "TEST(" word ")") == 1) { found = 1; break }
    close(file)
    return found
}
/^## / { on = $0 ~ /Easy to get wrong/ }
!on || !/^\|/ || /^\| (what|---) \|/ { next }
{
    lines++; cases = 0; rest = $4; file = ""
    while (match(rest, /`[^`]+`/)) {
        name = substr(rest, RSTART + 1, RLENGTH - 2); rest = substr(rest, RSTART + RLENGTH)
        if (name ~ /^test_/) {
            split(name, part, ": "); name = part[2]
            file = ""; find = "find tests/unit -name " part[1] ".c"; find | getline file; close(find)
            if (file == "") { printf "lib/README.md:%d: there is no %s.c below tests/unit\n", FNR, part[1]; bad = 1; continue }
        }
        if (name == "") continue
        if (file == "" || !has(file, name)) { printf "lib/README.md:%d: %s has no case %s\n", FNR, file, name; bad = 1; continue }
        cases++
    }
    if (!cases) { printf "lib/README.md:%d: names no case of a test:%s\n", FNR, $2; bad = 1 }
}
END { if (!lines) { print "lib/README.md: no such table"; bad = 1 } if (!bad) printf "check-named-tests: %d lines, each with its test\n", lines; exit bad }' lib/README.md
