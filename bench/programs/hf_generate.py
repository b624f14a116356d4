"""Generate tokens with a small Llama made from its configuration, with the time of a token."""

import argparse
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=1024)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=args.width,
        intermediate_size=args.width * 3,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 64,
        num_key_value_heads=max(1, args.width // 256),
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = LlamaForCausalLM(config).to(device=device, dtype=dtype).eval()
    prompt = torch.randint(config.vocab_size, (1, args.prompt), device=device)

    for round_number in range(args.rounds):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        out = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=args.tokens,
            min_new_tokens=args.tokens,
            do_sample=True,
            pad_token_id=0,
        )
        if device == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter() - begin
        count = out.shape[1] - prompt.shape[1]
        print(f"round {round_number}: {count} tokens, {took / count * 1e3:.3f} ms", flush=True)


if __name__ == "__main__":
    main()
