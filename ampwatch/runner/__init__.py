"""Runs a training in a process of its own: the training's side, around the user's script."""
