"""The parts that every recipe is made of; nothing here knows a task or a recipe."""
