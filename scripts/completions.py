#!/usr/bin/env python3
"""completions.py CKVC FOLDER: completion of verbs, options, words to choose from and paths for bash, zsh and fish, from `ckvc help`, below FOLDER
where each shell looks in PREFIX/share."""
import glob
import os
import re
import sys

from ckvc_help import listed_verbs, read_verbs

BASH = """# ckvc's completion for bash
_ckvc() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} option=${{COMP_WORDS[COMP_CWORD - 1]}} verb=${{COMP_WORDS[1]}} options= want= arguments=
    [ "$cur" != = ] || cur=
    [ "$option" != = ] || option=${{COMP_WORDS[COMP_CWORD - 2]}}
    [ "$COMP_CWORD" -lt 3 ] || case "$verb ${{COMP_WORDS[2]}}" in {two}) verb+=" ${{COMP_WORDS[2]}}" ;; esac
    [ "$COMP_CWORD" -gt 1 ] || verb=
    case $verb in
{cases}
    esac
    local last=${{cur##*,}}
    case $want in paths | words:*) ;; *) last=$cur ;; esac
    local before=${{cur%"$last"}}
    case ${{want:-$arguments}} in
    text) COMPREPLY=() ;;
    words:*) mapfile -t COMPREPLY < <(compgen -P "$before" -W "${{want#words:}}" -- "$last") ;;
    path*)
        if [ -z "$want" ] && [[ $cur == -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
        else
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -P "$before" -f -- "$last"; [ "$option" != --config ] || compgen -W "{configs}" -- "$cur")
        fi ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur") ;;
    esac
}}
complete -F _ckvc ckvc
"""
ZSH = """#compdef ckvc
# ckvc's completion for zsh
local -a verbs=({verbs})
if (( CURRENT == 2 )) || [[ $CURRENT -eq 3 && $words[2] == help ]]; then
    _describe verb verbs
    return
fi
local verb="$words[2]"
shift words
(( CURRENT-- ))
if (( CURRENT > 2 )) && [[ "$verb $words[2]" == ({two}) ]]; then
    verb+=" $words[2]"
    shift words
    (( CURRENT-- ))
fi
case $verb in
{cases}
esac
"""
FISH = """# ckvc's completion for fish
function __ckvc_is
    set -l words (commandline -opc)
    set -l n (math (count $argv) + 1)
    test (count $words) -ge $n; and test "$words[2..$n]" = "$argv"
end
complete -c ckvc -f
{lines}
"""


def want(option):
    """What follows an option: "" for nothing, `text`, `path`, `paths` (with commas between), or `words:a b` for one of the words a and b."""
    if option.is_path():
        return "paths" if option.metavar.endswith(",...") else "path"
    return "words:" + " ".join(option.words()) if option.words() else "text" if option.metavar else ""


def quoted(text):
    return "'" + text.replace("'", r"'\''") + "'"


def bash_case(verb):
    """The branch of BASH's `case` for a verb, which sets `options`, `arguments` and `want`."""
    names = {}
    for o in verb.options:
        names.setdefault(want(o), []).extend([f"-{o.letter}"] * bool(o.letter) + [f"--{o.name}"])
    words = [f"--{o.name}" for o in verb.options]
    lines = [f'    "{verb.name}")', f'        options="{" ".join(words)}"', "        arguments=path" if verb.takes_paths() else "", "        case $option in"]
    lines += [f"        {' | '.join(ns)}) want={quoted(w)} ;;" for w, ns in names.items() if w]
    return "\n".join(filter(None, lines)) + "\n        esac ;;"


def zsh_spec(option):
    """The argument of zsh's _arguments for an option."""
    kind = want(option)
    action = "{_files; compadd %s}" % configs if option.name == "config" else {"path": "_files", "paths": "_sequence _files", "text": " "}.get(kind, f"({kind[6:]})")
    if kind.startswith("words") and option.metavar == "NAME,...":
        action = f"_values -s , {option.metavar[:4]} {kind[6:]}"
    said = re.sub(r"([][\\])", r"\\\1", option.said)
    value = ":" + option.metavar.replace(":", r"\:") + ":" + action if kind else ""
    spec = quoted(f"[{said}]{value}")
    long = f"--{option.name}" + "=" * bool(kind)
    return f"'(-{option.letter} --{option.name})'{{-{option.letter}{'+' * bool(kind)},{long}}}{spec}" if option.letter else quoted("*" * kind.startswith("paths") + long) + spec


def zsh_case(verb):
    """The branch of ZSH's `case` for a verb."""
    specs = [zsh_spec(o) for o in verb.options] + ["'*:PATH:_files'"] * verb.takes_paths()
    return f'"{verb.name}")\n    _arguments -s \\\n        ' + " \\\n        ".join(specs) + "\n    ;;"


def fish_lines(verb):
    """Yields fish's `complete` commands for a verb; the first is empty if the verb takes no paths."""
    yield f"complete -c ckvc -n '__ckvc_is {verb.name}' -F" if verb.takes_paths() else ""
    for o in verb.options:
        kind = want(o)
        how = f" -r -F -a {quoted(configs)}" if o.name == "config" else {"": "", "text": " -x", "path": " -r -F", "paths": " -r -F"}.get(kind, f" -x -a {quoted(kind[6:])}")
        yield f"complete -c ckvc -n '__ckvc_is {verb.name}' -l {o.name}" + f" -s {o.letter}" * bool(o.letter) + f"{how} -d " + '"' + re.sub(r'([\\"$])', r"\\\1", o.said) + '"'


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


ckvc, folder = sys.argv[1:]
verbs = list(read_verbs(ckvc))
for v in verbs:
    v.options = [o for _, options in v.groups for o in options]
about = [(name, said) for _, names in listed_verbs(ckvc) for name, said in names] + [("help", "say what a verb does, and its options")]
names = " ".join(name for name, _ in about)
two = [v.name for v in verbs if " " in v.name]
families = {}
for name in two:
    families.setdefault(name.split()[0], []).append(name.split()[1])
configs = " ".join(sorted(os.path.basename(path)[:-5] for path in glob.glob("configs/*.conf")))

cases = ["    '' | help) [ \"$COMP_CWORD\" -gt 2 ] || want='words:" + names + " --version' ;;"]
cases += [f"    {family}) want='words:{' '.join(seconds)}' ;;" for family, seconds in families.items()]
cases += [bash_case(v) for v in verbs if v.name not in families]
write(f"{folder}/bash-completion/completions/ckvc", BASH.format(cases="\n".join(cases), two=" | ".join(f'"{n}"' for n in two), configs=configs))

cases = [f"{family}) _values verb {' '.join(seconds)} ;;" for family, seconds in families.items()]
cases += [zsh_case(v) for v in verbs if v.name not in families]
write(f"{folder}/zsh/site-functions/_ckvc", ZSH.format(cases="\n".join(cases), two="|".join(n.replace(" ", r"\ ") for n in two), verbs=" ".join(quoted(f"{n}:{said}") for n, said in about)))

lines = [f"complete -c ckvc -n 'test (count (commandline -opc)) -eq 1; or __ckvc_is help' -a {n} -d {quoted(said)}" for n, said in about]
lines += [f"complete -c ckvc -n '__ckvc_is {family}' -a {quoted(' '.join(seconds))}" for family, seconds in families.items()]
lines += [line for v in verbs if v.name not in families for line in fish_lines(v) if line]
write(f"{folder}/fish/vendor_completions.d/ckvc.fish", FISH.format(lines="\n".join(lines)))
