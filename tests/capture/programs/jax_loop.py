"""A jitted training step of JAX, for so many seconds; there is no torch in it, so no optimizer to hook."""

import sys
import time

import jax
import jax.numpy as jnp

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0


def loss(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return (x * x).mean()


@jax.jit
def train_step(weights, x):
    gradients = jax.grad(loss)(weights, x)
    return [w - 1e-3 * g for w, g in zip(weights, gradients, strict=True)]


keys = jax.random.split(jax.random.key(0), 5)
weights = [jax.random.normal(k, (4096, 4096)) / 64 for k in keys[:4]]
x = jax.random.normal(keys[4], (16384, 4096))
until = time.monotonic() + SECONDS
while time.monotonic() < until:
    weights = train_step(weights, x)
    jax.block_until_ready(weights)
