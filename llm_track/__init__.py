"""Language-model track: tasks, verifiers, samplers and policies for causal language models."""
