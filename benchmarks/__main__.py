"""All benchmarks: `python -m benchmarks [--threads ..] [--rounds ..]`."""

from __future__ import annotations

from benchmarks import elementwise, gemm, softmax, training_step

if __name__ == "__main__":
    for benchmark in (gemm, elementwise, softmax, training_step):
        print(f"== {benchmark.__name__}")
        benchmark.main()
