#!/usr/bin/env bash
# Holds every #include "room/..." against the table of rooms in docs/architecture.md: prints each arrow that it does not
# allow and fails. A room's name is the first folder, or the first two below lib/.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files -co --exclude-standard -- '*.c' '*.h' '*.cu' | grep -vE '^tests/' | xargs awk '
function room(path,   n, part) { n = split(path, part, "/"); return part[1] == "lib" ? part[1] "/" part[2] : part[1] }
BEGIN {
    allow["lib/base"] = ""
    allow["lib/policy"] = "lib/base/sizes.h lib/base/bytes.h lib/base/kept_set.h"
    allow["lib/token"] = "lib/base"
    allow["lib/backend"] = "lib/base"
    allow["lib/model"] = "lib/base lib/backend"
    allow["formats"] = "lib/base lib/policy/ckvc_policy.h lib/token/token_spec.h lib/model/model_spec.h"
    allow["cql"] = "lib/base"
    allow["calib"] = "lib/base lib/policy lib/token lib/model lib/backend formats cql"
    allow["report"] = "lib/base lib/policy formats cql"
    allow["corpus"] = "lib/base lib/token formats"
    allow["cmd"] = "*"
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    match($0, /"[^"]*"/); target = substr($0, RSTART + 1, RLENGTH - 2)
    from = room(FILENAME); to = room(target)
    if (index(target, "/") == 0 || from == to || !(from in allow)) next
    ok = allow[from] == "*"
    n = split(allow[from], list, " ")
    for (i = 1; i <= n; i++) if (list[i] == to || list[i] == target) ok = 1
    if (!ok) { printf "%s:%d: %s must not include %s\n", FILENAME, FNR, from, target; bad = 1 }
}
END { exit bad }' && echo "check-layers: every include is allowed"
