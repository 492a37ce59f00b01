"""What the performance figures come from: ratios measured in one run, on real servers (docs/benchmarks.md)."""
