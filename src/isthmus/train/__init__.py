"""The training loop: schedules, evaluation, checkpoints, resume."""
