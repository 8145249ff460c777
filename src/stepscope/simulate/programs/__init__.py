"""What the ranks run: layers, the schedules made of them, and their execution."""
