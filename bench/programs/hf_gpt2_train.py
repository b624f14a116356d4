"""Train a GPT-2 from its configuration on random tokens, with the time of each step."""

import argparse
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocab", type=int, default=50257)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = GPT2Config(
        vocab_size=args.vocab,
        n_layer=args.layers,
        n_embd=args.width,
        n_head=args.width // 64,
    )
    model = GPT2LMHeadModel(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    is_gpu = device == "cuda"

    for step in range(args.steps):
        tokens = torch.randint(config.vocab_size, (args.batch, args.length), device=device)
        if is_gpu:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if is_gpu:
            torch.cuda.synchronize()
        took = time.perf_counter() - begin
        print(f"step {step}: loss {loss.item():.3f}, {took * 1e3:.3f} ms", flush=True)


if __name__ == "__main__":
    main()
