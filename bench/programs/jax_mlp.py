"""Train a multilayer perceptron with JAX, with the time of each step."""

import argparse
import time

import jax
import jax.numpy as jnp


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=2048)
    args = parser.parse_args()

    keys = jax.random.split(jax.random.PRNGKey(0), args.layers + 1)
    scale = args.width**-0.5
    shape = (args.width, args.width)
    weights = [jax.random.normal(k, shape, jnp.bfloat16) * scale for k in keys[:-1]]
    x = jax.random.normal(keys[-1], (args.batch, args.width), jnp.bfloat16)

    def loss(weights, x):
        y = x
        for w in weights:
            y = jax.nn.gelu(y @ w)
        return jnp.mean((y.astype(jnp.float32) - x.astype(jnp.float32)) ** 2)

    @jax.jit
    def step(weights, x):
        value, grads = jax.value_and_grad(loss)(weights, x)
        return value, [w - (0.1 * g).astype(w.dtype) for w, g in zip(weights, grads)]  # noqa: B905

    for number in range(args.steps):
        begin = time.perf_counter()
        value, weights = step(weights, x)
        jax.block_until_ready(weights)
        took = time.perf_counter() - begin
        print(f"step {number}: loss {float(value):.5f}, {took * 1e3:.4f} ms", flush=True)


if __name__ == "__main__":
    main()
