"""Measures in transformers what prompts lose under tables and under reference policies, and writes the lines of `ckvc score` (formats/lines/scores.md), which
`ckvc fit --choose` and `ckvc report` read. Its verb `compile` calibrates, fits, chooses and judges a table, as `ckvc compile` does by demand.

A prompt is prefilled once. Each policy's cache is cut from that one, and the continuation is fed behind it in one piece. The reference policies full, top-k,
snapkv and adakv are those of the C program. kvpress's presses are named by their class; each of them prefills the prompt itself, and then the continuation is
fed token by token. KVzap with a model of scripts/kvzap.py is cut from the prompt's prefill, as tables are."""
from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import filecmp
import itertools
import json
import lzma
import math
import os
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache

from .calibrate import MIXES, OPTIONS, calibrate, check_layers, limits_of, loaded, options_of, parser
from .command_line import Usage
from .exchange import imported, needed, run
from .files import Error, begun, check, owned, publish, put, read, refuse, regular
from .fingerprint import check_model, fingerprint, folder_of
from .hf import Compression
from .hf_model import device_of, geometry_of, with_cache
from .json_text import canonical
from .manifest_prompts import Prompt, digest, plain_ids, read_prompts
from .prefill import Geometry, Kept, Prefill, _largest, _pool, attention_rows, log_softmax
from .run_writer import LINES_MAX, Lines
from .table import BY_FEATURES, BY_HEAD, FEATURES, Score, Table, budget_tokens

REFERENCES = ("full", "top-k", "snapkv", "adakv")
# KVzapPress keeps by a count, DMSPress by a threshold. Like KVzip, both also keep the first SINKS positions, and some of the last.
KVZAP, SINKS = ("KVzapPress", "DMSPress"), 4
SAME = 1e-4  # the most nats by which two programs' losses of a prompt may differ under the same weights; SmolLM2's differ by 1.4e-5
LINE_MAX = 16 << 20  # the most bytes of a line of scores
LAST = 32  # snapkv and adakv look at the last LAST rows, and keep their positions
Line = Dict[str, Any]
# A policy of a caller of `score`: of the prompt that a Scoring has read, and a budget, it says what is kept, the log-probabilities of the continuation as
# Scoring._from returns them (None: those from what is kept), and what its line says beside the rest.
Other = Callable[["Scoring", float], Tuple[Kept, Optional[torch.Tensor], Line]]


def top_k_table(g: Geometry, window: int) -> Table:
    """The table of policy top-k: its weights are 1, and every position passes its threshold."""
    L, G = g.n_layers, g.n_kv_heads
    content = dict(BUDGET=[1], GRIDHEAD=[1], GRIDGATE=[0], WEIGHT=np.ones((L, G, 1)), TAU=np.zeros((L, 1, 1, 1)), EDGEENT=[], EDGEPPL=[])
    return Table("top-k", imported("top-k", argparse.Namespace(heads=None), "top-k", content, (L, g.n_query_heads, G, 1, 1, 1, window, 0)))


# The rankings that `compile` tries, each with a ridge by which entries are fitted (0: they are not). budgets/select.c tries the same.
WAYS = (("learned", 0.0), ("learned", 0.5), ("bank", 0.1), ("bank", 0.5))


def recommending(table: Table, kind: Optional[str] = None, floor: Optional[float] = None, ridge: Optional[float] = None) -> Table:
    """A copy of the table that recommends other settings for every budget. kind: the ranking (window, learned, bank or paper). floor: the share of the budget
    that every head keeps; tables without shares ignore it. ridge: that of fitted entries; tables without a bank ignore it. None leaves what the table
    recommends. An Error says that the table has not what the ranking needs."""
    refuse(kind in BY_FEATURES and table.theta is None, f"{table.name}: has no learned ranking")
    refuse(kind == "bank" and table.bank is None, f"{table.name}: has no bank to rank by")
    t = copy.copy(table)
    if kind:
        learned = (FEATURES.get(table.score[0].features, (0, 0))[1], 0, False)
        own = {"window": (32, 7, True), "learned": learned, "bank": learned}.get(kind, (0, 0, False))
        t.score = [Score(kind, *own, s.features, s.mode) for s in table.score]
    if floor is not None and table.has_shares:
        t.c_min = np.column_stack([np.full(table.n_budgets, floor), table.c_min[:, 1]])
    if ridge is not None and table.ridge is not None:
        t.ridge = np.full_like(table.ridge, ridge)
    return t


class Scoring(Compression):
    """Inside its `with` block, `prefill` reads a prompt, and `under` says what a policy keeps of it and what the model predicts from that."""

    def __init__(self, model: PreTrainedModel, window: int, kvzap: Optional[PreTrainedModel] = None, others: Optional[Mapping[str, Other]] = None):
        super().__init__(model, top_k_table(geometry_of(model), window), 1)
        self.window, self.device, self.kvzap, self.others = window, device_of(model), kvzap, others or {}

    def _prefills(self, width: int) -> List[Prefill]:
        """No table decides during the prefill; only queries are kept, as many as any score reads."""
        self.rows = max(self.window, 64)
        return []

    def compress(self, *args: Any) -> None:
        """Leaves the prompt's cache whole: `_from` cuts copies of it. The tokens that follow need no queries."""
        self.rows = 0

    def feed(self, ids: Sequence[int], cache: Cache, n: int = 1, **more: Any) -> torch.Tensor:
        """Feeds ids behind the cache. Returns the log-probabilities [n, vocabulary] of what follows each of the last n, float32."""
        out = self.model(input_ids=torch.tensor([list(ids)], device=self.device), use_cache=True, logits_to_keep=n, **with_cache(self.model, cache), **more)
        return log_softmax(out.logits[0, -n:])

    def prefill(self, p: Prompt) -> None:
        """Reads a prompt: keeps its cache, its last queries and its risks, and in `full` the log-probabilities [C, vocabulary] of the continuation under the
        full cache."""
        self.p, self.cache, self._done, T = p, DynamicCache(), {}, p.n_tokens
        self.zapped: Dict[int, torch.Tensor] = {}
        with reading(self.model if self.kvzap else None, self._zap):
            rows = self.feed(p.tokens[:T], self.cache, min(self.window, T - 1) + 1)
        self.check_rows(self.cache)
        self.first, loss = rows[-1:], -rows[:-1].gather(1, torch.tensor(p.tokens[T - len(rows) + 1 : T], device=rows.device)[:, None])
        self.r_sem = float(loss.mean(dtype=torch.float64).exp()) if len(loss) else None
        self.whole = [[np.arange(T)] * self.geometry.n_kv_heads] * self.geometry.n_layers
        self.r_struct, self.full = self._by_table(self.table, 1, None)[0].r_struct, self._from(Kept("shared", T, self.whole))
        if not bool(self.full.gather(1, torch.tensor(p.tokens[T:], device=rows.device)[:, None]).isfinite().all()):
            raise Error(f'prompt "{p.id}": a loss of the full cache is not finite')

    def _zap(self, layer: int, x: torch.Tensor) -> None:
        """Takes KVzap's scores of a layer by its hidden states x [T, width], which may be on another device than KVzap's model."""
        module = self.kvzap.layers[layer]
        self.zapped[layer] = module(x.to(next(module.parameters()).device)).T.cpu()

    def _layers(self) -> Iterator[Tuple[torch.Tensor, torch.Tensor, torch.Tensor, float, None, Optional[torch.Tensor]]]:
        """The arguments of Prefill.layer for each of the table's rows."""
        for row, l in enumerate(self.geometry.layers):
            keys, values = (x[0, :, : self.p.n_tokens] for x in (self.cache.layers[l].keys, self.cache.layers[l].values))
            yield self._queries[row][0], keys, values, self._scaling, None, self._sinks[row]

    def _by_table(self, table: Table, budget: float, mode: Optional[str]) -> Tuple[Kept, Line]:
        """What a table keeps, and the members of its line that name the table and its settings."""
        p = Prefill(table, self.geometry, self.p.n_tokens, budget, mode)
        learned = [table.theta.tobytes()] if p.score.kind in BY_FEATURES else []
        of_bank = [x.tobytes() for x in (table.bank, table.bank_use[p.block])] if p.score.kind == "bank" else []
        key = p.score[:5], p._needs_alpha, table.alpha_kind, *learned, *of_bank
        if key in self._done:  # tables with the same score share its statistics, which are taken once
            vars(p).update({k: v for k, v in vars(self._done[key]).items() if k in ("_late", "_scores", "_norms", "_of_bank", "_mass")})
        else:
            for layer in self._layers():
                p.layer(*layer)
        self._done[key], kept, made = p, p.keep(self.r_sem), {}
        if table is not self.table:
            made.update(table=table.content_id, score=p.score.kind)
            with contextlib.suppress(KeyError, TypeError, AttributeError):  # the table was not fitted from demand
                made["mix"] = sum(x.get("mix", 0) for x in table.meta["diagnostics"]["demand"]["by_budget"] if x["budget"] == table.budgets[p.block])
            if table.ridge is not None and self.p.n_tokens > self.window:
                made["ridge"] = float(table.ridge[:, p.block].max())
            if kept.mode != "shared" and self.p.n_tokens > self.window:
                made["floor"] = float(table.c_min[p.block][0])
            if (p.score.kind, kept.mode) == ("paper", "shared") and self.p.n_tokens > self.window:
                made["bin_entropy"], made["bin_perplexity"] = table.bins(kept.r_struct or 0, self.r_sem)
        return kept, made

    def _by_head(self, policy: str, B: int, mode: str) -> Kept:
        """What snapkv or adakv keeps: the last rows' positions, and the others by the last rows' attention, of which the largest of 7 neighbours counts. In
        the modes `shared` and `layers` each layer keeps B positions, by the sum over its heads."""
        T, G, positions = self.p.n_tokens, self.geometry.n_kv_heads, []
        for q, keys, _, scaling, _, sinks in self._layers():
            s, before = torch.full((G, T), math.inf, dtype=torch.float64), max(T - LAST, 0)
            for g, queries in enumerate(q.unflatten(0, (G, -1)) if before else ()):
                rows = attention_rows(queries[:, -LAST:], keys[g], scaling, None, None if sinks is None else sinks.view(G, -1)[g])
                s[g, :before] = _pool(rows.mean((0, 1), dtype=torch.float64)[:before], 7).cpu()
            s, counts = s if mode == "heads" else s.sum(dim=0, keepdim=True), [B] * G
            if policy == "adakv" and mode == "heads":  # each head gets a fifth of B, and the best of all heads share the rest
                least = min(max(int(0.2 * B), LAST), B)
                others = s.sort(dim=1, descending=True).values[:, least:]
                best = others.flatten().sort(descending=True, stable=True).indices[: G * (B - least)] // max(others.shape[1], 1)
                counts = (least + torch.bincount(best, minlength=G)).tolist()
            sets = [_largest(x, torch.zeros(T, dtype=torch.bool), n).numpy() for x, n in zip(s, counts)]
            positions.append(sets * (G // len(sets)))
        return Kept(mode, T, positions)

    def _by_kvzap(self, policy: str, budget: float, B: int) -> Kept:
        """What KVzap keeps. The first and the last positions come first, and then the best by its scores: B·L·G entries of all heads and layers (KVzapPress),
        or all that reach the threshold of the budget (DMSPress)."""
        said = self.kvzap.config.ckvc[f"{budget:g}"]  # check_recent
        s = torch.stack([x for _, x in sorted(self.zapped.items())]).double().cpu()  # [L, G, T]
        s[..., :SINKS] = s[..., s.shape[2] - said["recent"] :] = math.inf
        if policy == "KVzapPress":
            best, kept = s.flatten().sort(descending=True, stable=True).indices[: B * s[..., 0].numel()], torch.zeros(s.numel(), dtype=torch.bool)
            kept[best] = True
        else:
            kept = s >= said["threshold"]
        return Kept("heads", s.shape[2], [[np.flatnonzero(head) for head in layer] for layer in kept.view(s.shape).numpy()])

    def _from(self, kept: Kept) -> torch.Tensor:
        """The log-probabilities [C, vocabulary] of the continuation, from a cache that holds what is kept. Layers that are no rows of the table hold all."""
        cache, queries, ids = copy.copy(self.cache), self._queries, self.p.tokens[self.p.n_tokens : -1]
        cache.layers, self.kept = [copy.copy(x) for x in self.cache.layers], [kept]
        if not kept.whole:
            self._cut(cache, ((k[None], v[None]) for _, k, v, *_ in self._layers()))
        self._queries = queries
        return torch.cat([self.first, self.feed(ids, cache, len(ids))]) if ids else self.first

    def _pressed(self, name: str, B: int) -> Tuple[Kept, torch.Tensor]:
        """How many positions kvpress's press of that class keeps of each head if it is told to keep B, as a Kept whose positions are only counted, since which
        they are is not known. And the log-probabilities of the continuation, as `_from` returns them."""
        kvpress = needed("kvpress", name)
        p, cache, kind, queries = self.p, DynamicCache(), getattr(kvpress, name), self._queries
        try:
            press = kind(press=kvpress.SnapKVPress()) if "press" in {f.name for f in dataclasses.fields(kind)} else kind()
            press.compression_ratio = max(0.0, 1 - (B + 0.5) / p.n_tokens)
            with press(self.model):
                self.feed(p.tokens[: p.n_tokens], cache)
        except Exception as why:  # presses raise exceptions of many kinds
            raise Error(f"{name}: {type(why).__name__}: {' '.join(str(why).split())[:200]}") from None
        hidden = {m.layer_idx: m for m in self.model.modules() if getattr(m, "masked_key_indices", None) is not None}
        positions = [[np.arange(x.keys.shape[2] - (int((hidden[l].masked_key_indices[1] == g).sum()) if l in hidden else 0))
                      for g in range(self.geometry.n_kv_heads)] for l, x in enumerate(cache.layers)]
        rows = [self.feed(p.tokens[t : t + 1], cache, position_ids=torch.tensor([[t]], device=self.device)) for t in range(p.n_tokens, len(p.tokens) - 1)]
        self._queries = queries
        for module in hidden.values():
            module.masked_key_indices = None
        return Kept("heads", p.n_tokens, positions), torch.cat([self.first, *rows])

    def under(self, policy: str, table: Table, budget: float, mode: Optional[str]) -> Line:
        """The line of a policy (formats/lines/scores.md) on the prompt that was read last, without the model and the manifest. policy: `table` (then table and
        mode are used), or a name of `score`. budget: tokens from 1 up, or a share of the prompt below 1. An Error says that a number is not finite."""
        p, rows, made, inside = self.p, None, {}, None
        T, B = p.n_tokens, min(budget_tokens(budget, p.n_tokens), p.n_tokens)
        by_rule = "heads" if mode in (None, "lengths") else mode  # rules by head keep their own lengths
        if policy in ("table", "top-k"):
            kept, made = self._by_table(table, budget, mode if policy == "table" else None)
        elif policy in self.others:
            kept, rows, made = self.others[policy](self, budget)
        elif policy == "full" or T <= self.window:
            kept = Kept("shared" if policy == "full" else by_rule, T, self.whole)
        elif policy in REFERENCES:
            kept = self._by_head(policy, B, by_rule)
        elif self.kvzap and policy in KVZAP:
            kept = self._by_kvzap(policy, budget, B)
        else:
            kept, rows = self._pressed(policy, B)
        by_set = (lambda x: [of[0] for of in x]) if kept.mode not in BY_HEAD else list
        if rows is None:
            inside = by_set([[int((s >= T - self.window).sum()) for s in of] for of in kept.positions])
            rows = self.full if kept.whole else self._from(kept)
        targets = torch.tensor(p.tokens[T:], device=rows.device)[:, None]
        loss, full = (-float(x.gather(1, targets).mean(dtype=torch.float64)) for x in (rows, self.full))
        kl = float((self.full.exp() * (self.full - rows)).sum(dim=-1, dtype=torch.float64).mean())
        refuse(not (math.isfinite(loss) and math.isfinite(kl)), f'prompt "{p.id}": {policy}: the loss or the divergence is not finite')
        out = dict(id=p.id, source=p.source or None, split="select" if p.select else "heldout" if p.heldout else p.split or None, token_hash=f"{p.token_hash:016x}",
                   policy=policy, table=None, tau=None, T=T, C=p.n_continuation, budget=budget, r_struct=self.r_struct, r_sem=self.r_sem, bin_entropy=None,
                   bin_perplexity=None, n_candidates=None, n_kept=by_set([[len(s) for s in of] for of in kept.positions]), n_kept_window=inside,
                   entries=kept.entries, head_dim=self.geometry.head_dim, loss_full=full, loss_comp=loss, reward=full - loss, kl=max(kl, 0.0))
        more = dict(made, document=p.document, window=self.window if self.window != 64 else 0, mode=kept.mode, whole=T <= self.window)
        return {**out, **{k: v for k, v in more.items() if v or k[:4] == "bin_" if k == "document" or v not in ("paper", "shared")}}


@contextlib.contextmanager
def reading(model: Optional[PreTrainedModel], read: Callable[[int, torch.Tensor], None]) -> Iterator[None]:
    """A context manager inside which `read` is called for each layer, with its number and the hidden states [T, width] that its attention reads of the single
    sequence that is fed. Without a model it does nothing."""
    def told(module: torch.nn.Module, _: Any, kwargs: Any) -> None:
        read(module.layer_idx, kwargs["hidden_states"][0])

    with contextlib.ExitStack() as hooks:
        for layer in model.get_decoder().layers if model else ():
            hooks.enter_context(layer.self_attn.register_forward_pre_hook(told, with_kwargs=True))
        yield


def check_policies(model: PreTrainedModel, policies: Sequence[str], mode: Optional[str] = None) -> None:
    """An Error if a policy is neither a reference nor a press of kvpress, or if a press would cut layers that slide or does not have that mode."""
    for x in sorted(set(policies).difference(REFERENCES)):
        refuse(not x.endswith("Press") or not hasattr(needed("kvpress", x), x), f"{x}: want {', '.join(REFERENCES)}, or a class of kvpress (SnapKVPress ...)")
        if geometry_of(model).n_layers < model.config.get_text_config().num_hidden_layers:
            raise Error(f"{x}: kvpress compresses layers that slide, too, which {type(model).__name__} has")
        refuse(mode in ("shared", "layers"), f"{x}: keeps a set of each head: other modes are for tables and {', '.join(REFERENCES)}")


def check_recent(said: Dict[str, Any], prompts: Sequence[Prompt], budgets: Sequence[float], window: int) -> None:
    """An Error if KVzap cannot serve a budget. said: for each budget of its folder (such as `0.125`), how many last positions stay (`recent`)."""
    for key, b in ((f"{b:g}", b) for b in budgets):
        refuse(key not in said, f"KVzap: budget {key} is none of {', '.join(said)}, which its folder has: scripts/kvzap.py -B makes others")
        for p in prompts:
            B, recent = budget_tokens(b, p.n_tokens), said[key]["recent"]
            if p.n_tokens > window and B < SINKS + recent:
                raise Error(f'KVzap: budget {key} keeps the first {SINKS} and last {recent}, more than the {B} tokens of prompt "{p.id}": want longer prompts or a larger budget')


@torch.no_grad()
def score(model: PreTrainedModel, prompts: Sequence[Prompt], budgets: Sequence[float], tables: Sequence[Table] = (), policies: Sequence[str] = (),
          mode: Optional[str] = None, window: int = 64, quiet: bool = True, kvzap: Optional[PreTrainedModel] = None, done: int = 0,
          others: Optional[Mapping[str, Other]] = None) -> Iterator[Line]:
    """Gives a line (formats/lines/scores.md, without model and manifest) for each prompt from number `done` on, each policy or table, and each budget.

    policies: names of REFERENCES, of kvpress's classes (SnapKVPress), or of `others`, which are policies of the caller's. kvzap: the model by which those of
    KVZAP score. An Error of one line says that a table is for another model or window, that a press does not exist or failed, that attention is not plain, or
    that there is too little memory."""
    check_layers(model)
    check_policies(model, [x for x in policies if x not in (others or ())], mode)
    if kvzap and set(KVZAP).intersection(policies):
        check_recent(kvzap.config.ckvc, prompts, budgets, window)
    for p, b in itertools.product(prompts, budgets if set(policies) != {"full"} or tables else ()):
        refuse(p.n_tokens > window and budget_tokens(b, p.n_tokens) < 1, f'prompt "{p.id}": budget {b:g} keeps none of its {p.n_tokens} tokens; the least is 1')
    c, training = Scoring(model, window, kvzap, others), model.training
    for t in tables:
        t.check_model(c.geometry.n_layers, c.geometry.n_query_heads, c.geometry.n_kv_heads, c.geometry.head_dim)
        refuse(t.window != window, f"{t.name}: its window is {t.window}, asked for is {window}: say --window {t.window}")
    try:
        with c:
            for n, p in enumerate(prompts[done:], done + 1):
                model.eval()
                c.prefill(p)
                for name, table, b in [(x, t, b) for x, t in [*((x, c.table) for x in policies), *(("table", t) for t in tables)] for b in budgets]:
                    yield c.under(name, table, b, mode)
                if not quiet:
                    print(f"score: {n} of {len(prompts)} prompts", file=sys.stderr, flush=True)
    except torch.OutOfMemoryError as why:
        raise Error(f"{str(why).splitlines()[0]}: spread the model, or say max_tokens") from None
    finally:
        model.train(training)


def read_beside(path: str, prompts: Sequence[Prompt]) -> Tuple[str, Dict[Tuple[str, str], float]]:
    """Reads score lines (.jsonl, .xz) of the same prompts, which were made with another file of the same weights. Returns the name of their model, and the
    full cache's losses by id and token_hash. An Error says which line is wrong, or which prompt is not there with the same tokens."""
    losses, model, n, size = dict.fromkeys((p.id, f"{p.token_hash:016x}") for p in prompts), "", 0, 0
    try:
        with open(path, "rb", opener=regular) as packed, lzma.open(packed) if path.endswith(".xz") else packed as f:
            for n, raw in enumerate(iter(lambda: f.readline(LINE_MAX), b""), 1):
                size += len(raw)
                refuse(len(raw) == LINE_MAX or size > LINES_MAX, f"more than {LINE_MAX} bytes, or {LINES_MAX} up to here")
                x = json.loads(raw)
                if (x["id"], x["token_hash"]) in losses:
                    losses[x["id"], x["token_hash"]], model = float(x["loss_full"]), str(x["model"])
    except (ValueError, KeyError, TypeError, EOFError, OverflowError, RecursionError, lzma.LZMAError) as why:
        raise Error(f"{path}: line {n}: {type(why).__name__}: {why}: want lines of ckvc score, with losses") from None
    for p in prompts:
        refuse(losses[p.id, f"{p.token_hash:016x}"] is None, f'{path}: prompt "{p.id}": is not there with these tokens')
    return model, losses


def write_scores(out: str, model: PreTrainedModel, manifest: str, prompts: Sequence[Prompt], budgets: Sequence[float], tables: Sequence[Table] = (),
                 policies: Sequence[str] = (), beside: Optional[str] = None, resume: bool = False, force: bool = False, inputs: Sequence[str] = (),
                 tokenizer: Any = None, **what: Any) -> int:
    """Writes the lines of `score` into `out`, which appears only when it is whole. Returns how many lines there are. manifest: the SHA-256 of the manifest.
    beside: a file of score lines, whose losses of the full cache must agree (read_beside).

    Until `out` is whole, out.checkpoint holds the lines of finished prompts. If it is there, resume goes on behind them, and force begins anew. With neither,
    or with other settings, there is an Error."""
    name, losses = read_beside(beside, prompts) if beside else (fingerprint(model), {})
    for t in tables:
        check_model(t, model, tokenizer, name)
    per = len(budgets) * (len(tables) + len(policies))
    settings = {k: str(v) for k, v in dict(
        what, kvzap=what.get("kvzap") and what["kvzap"].config.ckvc, model=name, backend=f"torch/{device_of(model).type}/{str(model.dtype)[6:]}", manifest=manifest, tokens=digest(prompts),
        prompts=len(prompts), lines=per, budget=budgets, policy=policies, table=[(t.content_id, t.score, str(t.c_min), str(t.ridge)) for t in tables]).items() if k not in ("quiet", "others")}
    check(out + ".checkpoint", True, inputs)
    with owned(out + ".checkpoint") as held:
        log = Lines(held, anew=force and not resume)
        if len(log.all) > 1 and not force:
            refuse(not resume, f"{log.path}: a score was stopped here; go on with --resume, or begin anew with --force", FileExistsError)
            for k, v in settings.items():
                refuse(log.all[0].get(k) != v, f"{log.path}: was begun with {k} {log.all[0].get(k)}, now {v}; give the same, or begin anew with --force")
        done = (len(log.all) - 1) // per if resume and log.all[:1] == [settings] else 0
        log.keep(1 + done * per if done else 0)
        try:
            lines = score(model, prompts, budgets, tables, policies, done=done, **what)
            while of_prompt := list(itertools.islice(lines, per)):
                for x in of_prompt:
                    other = losses.get((x["id"], x["token_hash"]), x["loss_full"])
                    refuse(not abs(other - x["loss_full"]) <= SAME, f'{beside}: prompt "{x["id"]}": the full cache\'s loss is {other:.6f}, here {x["loss_full"]:.6f}: want the same model')
                log.append(*([] if log.all else [settings]), *({"model": name, "manifest": manifest, **x} for x in of_prompt))
        except BaseException:
            if len(log.all) < 2:  # there is nothing that --resume could go on from
                os.unlink(log.path)
            raise
        data = "".join(canonical(x) + "\n" for x in log.all[1:]).encode()
        ended = resume and os.path.lexists(out) and read(out, LINES_MAX) == data  # an earlier command was killed when it had published these
        publish(out, data, force or ended, inputs)
        os.unlink(log.path)
        return len(log.all) - 1


def kvzap_model(folder: Optional[str], model: PreTrainedModel) -> Optional[PreTrainedModel]:
    """kvpress's KVzapModel from a folder of scripts/kvzap.py, on the model's device. An Error says that it has another shape, or was not made by that
    script."""
    if not folder:
        return None
    needed("kvpress", "KVzapPress")
    from kvpress.presses.kvzap_press import KVzapModel
    refuse(not os.path.isdir(folder), f"{folder}: no such folder: scripts/kvzap.py makes one", FileNotFoundError)
    try:
        out, g = KVzapModel.from_pretrained(folder, dtype=model.dtype), geometry_of(model)
    except Exception as why:  # exceptions of many kinds, as in `loaded`
        raise Error(f"{folder}: {type(why).__name__}: {' '.join(str(why).split())[:300]}") from None
    c, want = out.config, (g.n_layers, model.config.get_text_config().hidden_size, g.n_kv_heads)
    if (c.n_modules, c.input_dim, c.output_dim) != want or not hasattr(c, "ckvc"):
        raise Error(f"{folder}: of {c.n_modules} layers, width {c.input_dim}, {c.output_dim} KV heads; wanted {want[0]}, {want[1]}, {want[2]}, made by scripts/kvzap.py")
    return out.to(device_of(model)).eval()


def make_prompts(a: Any, model: PreTrainedModel) -> Tuple[str, str]:
    """Makes the prompts of `compile` where no manifest is given, as `ckvc compile` does: of the texts that come with the C program, of those of a.texts, or half
    of each, in turns. Half of the prompts are retrieval, and they are split into fit, select and heldout by document. Prompts to fit that share text with others
    are left out. Lengths are not fitted to the model's context. Returns the paths of the manifest and of the record of that check, both in a.out. An Error says
    that a.out holds a run already, that the run which is to go on has other prompts, or that there is too little text."""
    manifest, record = (os.path.join(a.out, name) for name in ("prompts.jsonl", "prompts-check.json"))
    refuse(not a.resume and os.path.exists(os.path.join(a.out, "demand")), f"{a.out}: holds a run already: --resume goes on with it, or choose another --out")
    length, number, seed = a.lengths or 1024, a.prompts or 48, ("--seed", str(a.seed))
    goes_on, of_model = a.resume and os.path.exists(manifest) and os.path.exists(record), ("--model", folder_of(model.config) or a.model)

    def built(name: str, most: int, *texts: str) -> List[bytes]:
        """The lines of at most so many prompts. texts: files and folders; none: those that come with the C program."""
        path = os.path.join(scratch, name)
        run(a.ckvc, "manifest", "build", *of_model, "--prompts", str(most), "--retrieval", "0.5", "--query", a.query or "seen", "--min-length", str((4 * length + 4) // 5),
            "--max-length", str(length), "--continuation", str(a.continuation), "--split-share", "select=0.2,heldout=0.2", "--even-splits", *seed, *("text=" + x for x in texts), "--out", path)
        return read(path, 1 << 30).splitlines(keepends=True)

    os.makedirs(a.out, exist_ok=True)
    with begun(os.path.join(a.out, "made"), force=True, folder=True) as scratch:
        whole, made, checked = (os.path.join(scratch, name) for name in ("all.jsonl", "prompts.jsonl", "prompts-check.json"))
        own = built("own.jsonl", number if a.default_texts == "no" else (number + 1) // 2, *a.texts) if a.texts else []
        shipped = built("shipped.jsonl", number - len(own)) if a.default_texts != "no" else []
        put(b"".join(itertools.chain(*itertools.zip_longest(own, shipped, fillvalue=b""))), whole)
        run(a.ckvc, "manifest", "check", whole, "--against", whole, *of_model, *seed, "--clean", made, "--out", checked)
        refuse(goes_on and not filecmp.cmp(manifest, made, shallow=False), f"{manifest}: today's options or texts make other prompts than these: give the options that the "
               f"run began with, or go on with --manifest {manifest} --leak-check {record}")
        for file, to in () if goes_on else ((made, manifest), (checked, record)):
            publish(to, read(file, 1 << 30), force=True)
        for file in os.listdir(scratch):
            os.unlink(os.path.join(scratch, file))
    os.rmdir(os.path.join(a.out, "made"))
    return manifest, record


def uses(ckvc: str, path: str, model: str, g: Geometry) -> str:
    """What the table in the file `path` keeps, and the lines that use it in each engine, as `ckvc compile` ends with them. `ckvc inspect` says these lines."""
    said, token = json.loads(run(ckvc, "inspect", "--json", path))["uses"], 4 * g.n_layers * g.n_kv_heads * g.head_dim  # bytes of keys and values in 16 bits
    lines = [f"bytes: the table has {os.path.getsize(path) / 1e6:.1f} MB; of a prompt's cache, {token / 1e3:.1f} kB a token in 16 bits, it keeps {', '.join(said['keeps'])}",
             "", "# in Python, a whole program (python/README.md)", *(x.replace('"DIR"', json.dumps(model)) for x in said["python"])]
    if "vllm" in said:
        lines += ["", "# in vLLM (docs/vllm.md)", said["vllm"].replace("vllm serve DIR", f"vllm serve {model}")]
    if "llama" in said:
        lines += ["", "# in llama.cpp, a whole program; it needs the C library, export CKVC_LIBRARY=build/release/libckvc_policy.so (python/README.md#llamacpp)", *said["llama"]]
    if "other" in said:
        lines += ["", f"# {said['other']}"]
    return "\n".join(lines)


def compiled(a: Any, model: PreTrainedModel, tokenizer: Any) -> str:
    """Does `compile`: calibrates, runs `ckvc fit`, scores candidates on split select, runs `ckvc fit --choose`, scores the table on split heldout, and runs
    `ckvc report`. Returns what was tried, and the report's words. The C program drops losing candidates early; here each is scored on every prompt of
    select."""
    check_policies(model, a.policy)
    o, (demand, chosen, report, select, heldout) = options_of(a), (os.path.join(a.out, x) for x in ("demand", "table.ckvt", "report", "select.jsonl", "heldout.jsonl"))
    os.makedirs(os.path.join(a.out, "tables"), exist_ok=True)
    calibrate(model, tokenizer, a.manifest, o, demand)
    prompts, sha = read_prompts(a.manifest, tokenizer, limits_of(model.config.get_text_config(), o, len(plain_ids(tokenizer, "\n\n" + o.repeat))))

    def fit(path: str, *more: str) -> Table:
        more = ("--mode", a.mode, *(("--classes", a.classes) if a.classes else ()), *more)
        said[0] = run(a.ckvc, "fit", demand, "--features", a.features, *(("--leak-check", a.leak_check) if a.leak_check else ()), *more, "--force", "--out", path)
        return Table.read(path)

    def scored(path: str, of: List[Prompt], tables: List[Table], policies: Sequence[str] = ()) -> str:
        there = Lines(open(path, "rb", buffering=0, opener=regular)).all if o.resume and os.path.exists(path) else ()
        if {(str(x.get("policy")), x.get("table") and str(x["table"])) for x in there} != {("table", t.content_id) for t in tables} | {(x, None) for x in policies}:
            write_scores(path, model, sha, of, o.budgets, tables, policies, tokenizer=tokenizer, resume=o.resume, force=True, window=o.window, quiet=o.quiet)
        return path

    floors, said = sorted({max(o.floor, f) for f in (0, 0.2, 0.4)}), [""]
    choosing, judging = [x for x in prompts if x.select], [x for x in prompts if x.heldout and not x.select]
    if choosing:
        def of_mix(w: float) -> Table:
            return fit(os.path.join(a.out, "tables", f"mix-{w:g}.ckvt"), "--mix", f"{w:g}")

        of_demand = {0.0: of_mix(0.0)}
        ends, bank = sorted({floors[0], floors[-1]}), of_demand[0.0].bank is not None
        mixed = [(kind, floors[0], w, 0.1) for w in MIXES if w <= 0.5 for kind in ("bank", "learned")] if bank else [("learned", f, w, 0.0) for w in MIXES for f in ends]
        tried = [*(("window", f, 0.0, 0.0) for f in sorted({floors[-1], 1.0})), *((kind, f, 0.0, r) for f in floors for kind, r in (WAYS if bank else WAYS[:1])),
                 ("paper", floors[-1], 0.0, 0.0), *mixed]
        tried = [x for x in tried if x[0] in BY_FEATURES or a.features == "1"]
        of_demand.update((w, of_mix(w)) for w in sorted({x[2] for x in tried} - {0.0}))
        table = fit(chosen, "--choose", scored(select, choosing, [recommending(of_demand[w], kind, f, r) for kind, f, w, r in tried]))
    else:
        table = fit(chosen)
        said.append("no held-out prompt is in the split select, so the table recommends what was fitted last")
    if judging:
        unfitted = [recommending(table, ridge=0)] if table.ridge is not None and table.ridge.any() else []
        said.append(run(a.ckvc, "report", chosen, demand, "--scores", scored(heldout, judging, [*unfitted, table], a.policy), "--out", report, "--force"))
    else:
        said.append("no prompt is held out (split heldout), so nothing says whether the table is better than none")
    return "\n\n".join(said) + f"\nwrote {chosen}, content id {table.content_id}\n" + uses(a.ckvc, chosen, a.model, geometry_of(model))


def main(verb: str, words: List[str]) -> str:
    """Does `python3 -m ckvc score MODEL ...` or `compile MODEL ...`, and returns what is printed."""
    scores = verb == "score"
    p = parser(verb, "Losses of prompts under tables and references, by torch, as lines for `ckvc report`." if scores else
               "A table that is chosen and judged, by torch and `ckvc fit`.", ["window", "continuation", "max_tokens", "resume", "quiet"] if scores else OPTIONS)
    several = dict(type=lambda x: list(dict.fromkeys(x.split(","))))
    p.add_argument("--policy", **several, default=[] if scores else REFERENCES, help=f"Also run these policies: {','.join(REFERENCES)}, or classes of kvpress, such as SnapKVPress.")
    if scores:
        for name in ("table", "split"):
            p.add_argument("--" + name, **several, default=[], metavar="X,...")
        p.add_argument("--mode", word_was=("shared", "uniform"), choices=("heads", "layers", "lengths", "uniform"),
                       help="Use this mode instead of the one that a table recommends.")
        p.add_argument("--ranking", was="--score", choices=("window", "learned", "bank", "paper"),
                       help="Rank by this ranking instead of the one that a table recommends.")
        p.add_argument("--kept-floor", was="--c-min", type=float, metavar="F", help="Keep at least this share of the budget in every head, instead of what a table recommends.")
        p.add_argument("--kvzap", metavar="FOLDER", help="Use the model that scripts/kvzap.py put here, for KVzapPress (best of all heads and layers) and DMSPress (by threshold).")
        p.add_argument("--beside", metavar="LINES",
                       help="Write lines as of the model (a GGUF file's) of these lines of ckvc score on the same prompts, where losses of the full cache agree.")
        p.add_argument("-f", "--force", action="store_true", help="Overwrite the output.")
    else:
        p.add_argument("--features", default="1", choices=("1", "2"), help="Fit the learned ranking on this set of features; set 2 is without the attention of the last rows.")
        p.add_argument("--mode", default="heads", choices=("heads", "layers", "lengths"), help="Make a table of this mode (ckvc fit).")
        p.add_argument("--classes", metavar="K", help="With --mode lengths, put the layers into K classes of one length each (ckvc fit).")
        p.add_argument("--leak-check", metavar="CHECK.json", help="Keep this record of ckvc manifest check in the table.")
        p.add_argument("--texts", **several, default=[], metavar="PATH,...",
                       help="Without --manifest, make half of the prompts of these files and folders of text, and the others of the texts that come with the C program.")
        p.add_argument("--default-texts", choices=("yes", "no"),
                       help="Without --manifest, take the texts that come with the C program (yes, the default), or with no those of --texts alone.")
        p.add_argument("--lengths", type=int, metavar="N",
                       help="Without --manifest, make prompts of at most N tokens and at least four fifths of that; without this option 1024.")
        p.add_argument("--prompts", type=int, metavar="N", help="Without --manifest, make N prompts, half of them retrieval; without this option 48.")
        p.add_argument("--query", choices=("seen", "unseen"),
                       help="Without --manifest, let retrieval prompts end inside their question (seen, the default), or before it (unseen).")
        p.add_argument("--ckvc", default=os.environ.get("CKVC", "ckvc"), help="Run this as the C program; without this option %(default)s.")
        p.set_defaults(kvzap=None)
    a = p.parse_args(words)
    refuse(a.kvzap and not set(KVZAP).intersection(a.policy), f"--kvzap: goes with --policy {' or '.join(KVZAP)}", Usage)
    refuse("DMSPress" in a.policy and not a.kvzap, "DMSPress: keeps by a threshold: want python3 -m ckvc score --kvzap FOLDER, which scripts/kvzap.py makes", Usage)
    if not scores:
        refuse(a.leak_check and not a.manifest, "--leak-check: is the record of a --manifest", Usage)
        refuse(a.manifest and any((a.lengths, a.prompts, a.query, a.texts, a.default_texts)),
               "--texts, --default-texts, --lengths, --prompts and --query say how prompts are made, but those of --manifest are made: leave these out, or --manifest", Usage)
        refuse(a.default_texts == "no" and not a.texts, "--default-texts no: give --texts DIR, or leave it out", Usage)
        refuse(a.lengths is not None and a.lengths < 1, f"--lengths: got {a.lengths}, wanted a number of tokens", Usage)
        refuse(a.prompts is not None and a.prompts < 8, f"--prompts: got {a.prompts}, wanted 8 or more", Usage)
        run(a.ckvc, "--version")
        model, tokenizer = loaded(a)
        if not a.manifest:
            a.manifest, a.leak_check = make_prompts(a, model)
        return compiled(a, model, tokenizer)
    refuse(not 0 <= (a.kept_floor or 0) <= 1, f"--kept-floor: got {a.kept_floor}, wanted 0 to 1", Usage)
    tables = list({t.content_id: recommending(t, a.ranking, a.kept_floor) for t in map(Table.read, a.table)}.values())
    refuse(not tables and not (a.policy and a.budget), "give --table, or --policy and --budget", Usage)
    inputs = [a.model, a.manifest, *a.table, *filter(None, (a.beside, a.kvzap))]
    check(a.out, a.force or (a.resume and os.path.exists(a.out + ".checkpoint")), inputs)
    budgets, (model, tokenizer) = tuple(dict.fromkeys(a.budget or map(float, tables[0].budgets))), loaded(a)
    limits = dataclasses.replace(limits_of(model.config.get_text_config(), options_of(a, budgets=budgets), -1), window=0)
    prompts, sha = read_prompts(a.manifest, tokenizer, limits)
    prompts = [x for x in prompts if not a.split or x.split in a.split]
    refuse(not prompts, f"{a.manifest}: no prompt is of split {', '.join(a.split)}")
    n = write_scores(a.out, model, sha, prompts, budgets, tables, a.policy, tokenizer=tokenizer, beside=a.beside, resume=a.resume, force=a.force, inputs=inputs, mode="shared" if a.mode == "uniform" else a.mode, window=a.window, quiet=a.quiet,
                     kvzap=kvzap_model(a.kvzap, model))
    return f"wrote {a.out}, {n} lines; next: ckvc report {','.join(a.table) or 'T.ckvt'} --scores {a.out} --out scores-report"
