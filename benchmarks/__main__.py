"""All benchmarks: `python -m benchmarks [--threads ..] [--rounds ..]`."""

from __future__ import annotations

from benchmarks import elementwise, gemm, softmax

if __name__ == "__main__":
    for benchmark in (gemm, elementwise, softmax):
        print(f"== {benchmark.__name__}")
        benchmark.main()
