#!/usr/bin/env python3
"""SmolLM2's tokenizer: ids of whole books from the GGUF file's metadata against Hugging Face `tokenizers` with the pre-tokenizer of
SmolLM2's own tokenizer.json (every digit apart, then byte level), built from the same pieces and merges."""
import outside

tokenizers, gguf = outside.modules("tokenizers", "gguf")
a = outside.arguments()

fields = gguf.GGUFReader(a.gguf).fields


def value(key):
    return fields["tokenizer.ggml." + key].contents()


pieces = value("tokens")
theirs = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={s: i for i, s in enumerate(pieces)},
                                                    merges=[tuple(m.split(" ")) for m in value("merges")]))
theirs.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
    tokenizers.pre_tokenizers.Digits(individual_digits=True),
    tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
theirs.add_special_tokens([tokenizers.AddedToken(s, special=True, normalized=False)
                           for s, kind in zip(pieces, value("token_type")) if kind == 3])

ours_of = {"gguf": a.gguf}
if (a.models / "bf16").is_dir():
    ours_of["bf16 directory"] = a.models / "bf16"
texts = {book.name: book.read_text(errors="replace") for book in sorted(a.text.parent.glob("*.txt"))}
texts["odd text"] = ("1984  1985   x\t\n  \n don't DON'T  <|im_start|>user\n123 4 5<|im_end|>  na\u00efve \u4f60\u597d \U0001F600\u200d\U0001F600 "
                     "\u0000\u0001 \u00a0\u2003end   ")
for name, text in texts.items():
    want = theirs.encode(text, add_special_tokens=False).ids
    for kind, model in ours_of.items():
        got = outside.tokens_of(a, model, text, "--no-special")
        wrong = abs(len(got) - len(want)) + sum(x != y for x, y in zip(got, want))
        outside.at_most(f"{name}, {kind}: ids that differ, of {len(want)}", wrong, 0)
outside.done()
