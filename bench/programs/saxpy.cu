// A saxpy and a reduction over and over, with the time of each step.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call)                                                            \
  do {                                                                         \
    cudaError_t code = (call);                                                 \
    if (code != cudaSuccess) {                                                 \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code));       \
      std::exit(1);                                                            \
    }                                                                          \
  } while (0)

__global__ void saxpy(int n, float a, const float *x, float *y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = a * x[i] + y[i];
}

__global__ void sum(int n, const float *x, float *total) {
  __shared__ float part[256];
  float mine = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    mine += x[i];
  part[threadIdx.x] = mine;
  __syncthreads();
  for (int half = blockDim.x / 2; half; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(total, part[0]);
}

int main(int argc, char **argv) {
  int steps = argc > 1 ? std::atoi(argv[1]) : 100;
  int n = argc > 2 ? std::atoi(argv[2]) : 1 << 26;
  float *x, *y, *total, result = 0;
  CHECK(cudaMalloc(&x, n * sizeof(float)));
  CHECK(cudaMalloc(&y, n * sizeof(float)));
  CHECK(cudaMalloc(&total, sizeof(float)));
  CHECK(cudaMemset(x, 0, n * sizeof(float)));
  CHECK(cudaMemset(y, 0, n * sizeof(float)));
  for (int step = 0; step < steps; ++step) {
    auto begin = std::chrono::steady_clock::now();
    CHECK(cudaMemsetAsync(total, 0, sizeof(float)));
    for (int i = 0; i < 4; ++i) saxpy<<<2048, 256>>>(n, 0.5f, x, y);
    sum<<<2048, 256>>>(n, y, total);
    CHECK(cudaMemcpy(&result, total, sizeof(float), cudaMemcpyDeviceToHost));
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    std::printf("step %d: %.4f ms\n", step, took.count());
  }
  CHECK(cudaFree(x));
  CHECK(cudaFree(y));
  CHECK(cudaFree(total));
  return 0;
}
