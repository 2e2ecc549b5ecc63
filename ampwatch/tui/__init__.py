"""The dashboard: a loop around a session, and keys that turn the knobs of a training run."""
