"""`rocade demo`: a real model answers questions that share a long prompt, with cascade attention and without.

SmolLM2-135M-Instruct runs in plain torch on the CPU; three ways to attend take each of its steps in turn.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from rocade import ArchCapabilityError, explain
from rocade.demo import _download, _prompt, _report
from rocade.demo._errors import DemoError
from rocade.demo._generate import Batch, split_batch
from rocade.demo._gguf import read_model
from rocade.demo._job import PAGE_SIZE, Job
from rocade.demo._model import Llama
from rocade.demo._terminal import AnswerStream
from rocade.demo._tokenizer import Tokenizer

__all__ = ["main"]

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Logits between two tokens below which rounding may choose. Orders of summation change leads by up to 6e-5 in
# fp32 and 0.3 in bf16 here, over 768 tokens; fp16 rounds 8 times finer than bf16.
_TIE_LIMITS = {"fp32": 1e-3, "bf16": 0.5, "fp16": 0.05}
_QUICK_PROMPT = 3000  # characters of the handbook, about 700 tokens


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rocade demo",
        description="Answer a batch of questions that share a long system prompt, three ways: with rocade's "
        "cascade, with its paged attention without sharing, and with PyTorch's attention. Fetches the model "
        f"({_download.MEGABYTES} MB) the first time.",
    )
    add = parser.add_argument
    add("--tokens", type=int, default=48, help="tokens an answer (default: %(default)s)")
    add("--batch", type=int, default=16, help="questions answered together (default: %(default)s)")
    add("--threads", type=int, help="CPU threads (default: what torch chooses)")
    add("--dtype", choices=_DTYPES, default="fp32", help="of attention and KV cache; the model stays fp32")
    add("--backend", default="auto", help="of rocade's attention (default: %(default)s)")
    add("--model", type=Path, help="a GGUF file of this model that is already here")
    add("--cache-dir", type=Path, help="where the model is kept (default: demo/ in rocade's cache folder)")
    add(
        "--quick",
        action="store_true",
        help="4 questions, 8 tokens, less than half of the prompt: does it run at all?",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 0 if tokens agree but for ties, 1 if not or if it cannot run, 2 for wrong usage."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.quick:
        args.tokens, args.batch = 8, 4
    if args.tokens < 2 or args.batch < 1 or (args.threads is not None and args.threads < 1):
        parser.error("--tokens is at least 2, --batch and --threads at least 1")
    try:
        explain("cascade", backend=args.backend)
    except ValueError as error:
        parser.error(f"--backend: {error}")
    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        with torch.inference_mode():
            return _run(args)
    except (DemoError, ArchCapabilityError) as error:
        print(f"rocade demo: {error}", file=sys.stderr)
        return 1


def _run(args: argparse.Namespace) -> int:
    model, tokenizer = _load(args)
    questions = _prompt.questions(args.batch)
    batch = _batch(tokenizer, questions, _QUICK_PROMPT if args.quick else None)
    if batch.longest + args.tokens > model.config.context_length:
        raise DemoError(f"--tokens {args.tokens} is more than the model's context has room for")
    print(
        f"{args.batch} questions share a prompt of {len(batch.prompt)} tokens "
        f"({len(batch.prompt) // PAGE_SIZE} pages); {args.tokens} greedy tokens each; "
        f"attention and KV cache in {args.dtype}; {torch.get_num_threads()} threads"
    )
    job = Job(model, batch, args.tokens, _DTYPES[args.dtype], args.backend)
    return _compare(job, AnswerStream(questions, tokenizer.answer), _TIE_LIMITS[args.dtype])


def _load(args: argparse.Namespace) -> tuple[Llama, Tokenizer]:
    path = args.model or _download.find_model(args.cache_dir)
    began = time.perf_counter()
    found = read_model(path)
    model = Llama(found.config, found.weights)
    c = found.config
    print(
        f"{found.name}: {c.num_layers} layers, {c.num_qo_heads}/{c.num_kv_heads} heads of {c.head_dim}, "
        f"read in {time.perf_counter() - began:.1f} s",
        flush=True,
    )
    return model, Tokenizer(found.vocabulary)


def _batch(tokenizer: Tokenizer, questions: list[str], prompt_characters: int | None) -> Batch:
    """The chats as tokens, cut where they stop being the same."""
    shared = [("system", _prompt.system_prompt()[:prompt_characters]), *_prompt.examples()]
    return split_batch([tokenizer.chat([*shared, ("user", q)]) for q in questions], PAGE_SIZE)


def _compare(job: Job, stream: AnswerStream, tie_limit: float) -> int:
    cascade, paged, sdpa = job.run(stream)
    equality, good = _report.equality((cascade, paged), sdpa, tie_limit)
    sections = (
        equality,
        _report.timing((cascade, paged), sdpa),
        _report.memory(cascade, sdpa),
        ["Backends", *(f"  {line}" for line in job.explain())],
    )
    print("\n" + "\n\n".join("\n".join(section) for section in sections))
    return 0 if good else 1
