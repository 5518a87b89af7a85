"""Text in, batches out: deterministic and resumable."""
