"""The steps of saxpy.cu from Python with CuPy, for hosts without a CUDA compiler."""

import sys
import time

import cupy


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 26
    saxpy = cupy.ElementwiseKernel("float32 a, float32 x, float32 y", "float32 z", "z = a * x + y")
    x, y = cupy.zeros(n, cupy.float32), cupy.zeros(n, cupy.float32)
    for step in range(steps):
        begin = time.perf_counter()
        for _ in range(4):
            saxpy(cupy.float32(0.5), x, y, y)
        float(y.sum())
        print(f"step {step}: {(time.perf_counter() - begin) * 1e3:.4f} ms", flush=True)


if __name__ == "__main__":
    main()
