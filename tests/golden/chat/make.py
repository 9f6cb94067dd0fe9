"""Expected texts of chat templates, rendered with jinja2 as transformers' apply_chat_template renders them.

    python make.py STYLE=tokenizer_config.json ... > expected.json      (jinja2)

STYLE is a name of chat_style_name. The templates themselves stay where they are: only messages
of our own and what became of them are kept. `refused`: the template raises an exception.
"""
import hashlib
import json
import re
import sys

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

S, U, A = "system", "user", "assistant"
CONVERSATIONS = [
    [(U, "What is a cache?")],
    [(S, "Answer in one word."), (U, "What is a cache?")],
    [(U, "Count."), (A, "One, two."), (U, "Go on.")],
    [(S, "Be brief."), (U, "Count."), (A, "One, two."), (U, "Go on."), (A, "Three.")],
    [(U, "  \t two spaces around \n\n"), (A, "\n and \u00a0these\u3000"), (U, "\u2003x\u200b\u2028")],
    [(S, " \n system with edges \n "), (U, "y")],
    [(U, "line one\nline two\r\nline three: <|im_end|> [/INST] </s> {{ not jinja }} {% raw %} <|eot_id|>")],
    [(U, "")],
    [(U, " \n ")],
    [(S, ""), (U, "z")],
    [(U, "Grüße, 世界 \U0001F600"), (A, "日本語 e\u0301")],
    [(U, "a"), (U, "b")],
    [(A, "I begin."), (U, "You do.")],
    [(U, "a"), (S, "later"), (U, "b")],
    [(S, "alone")],
    [(U, "a"), (A, "b"), (A, "c")],
    [(S, "one"), (S, "two"), (U, "a")],
    [(U, "u%d" % (i // 2)) if i % 2 == 0 else (A, "a%d " % (i // 2)) for i in range(9)],
]


def refuse(message):
    raise TemplateError(message)


def folded(text):
    """Without the white space that a minus strips, and one line end behind all."""
    return re.sub(r"(?<=-[}%#]\})[ \t\r\n]+|[ \t\r\n]+(?=\{[{%#]-)", "", text.removesuffix("\n"))


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
env.globals["raise_exception"] = refuse
cases = []
for argument in sys.argv[1:]:
    style, path = argument.split("=", 1)
    config = json.load(open(path))
    template = env.from_string(config["chat_template"])
    print(style, hashlib.sha256(folded(config["chat_template"]).encode()).hexdigest()[:32], file=sys.stderr)
    tokens = {k: v["content"] if isinstance(v, dict) else v for k, v in config.items() if k in ("bos_token", "eos_token") and v}
    for conversation in CONVERSATIONS:
        messages = [{"role": r, "content": c} for r, c in conversation]
        case = {"style": style, "messages": messages}
        try:
            case["text"] = template.render(messages=messages, add_generation_prompt=conversation[-1][0] != A, **tokens)
        except TemplateError:
            case["refused"] = True
        cases.append(case)
json.dump(cases, sys.stdout, ensure_ascii=True, indent=0)
print()
