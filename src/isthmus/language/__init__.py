"""The kernel language: decorated Python functions into tile IR, with caret diagnostics."""
