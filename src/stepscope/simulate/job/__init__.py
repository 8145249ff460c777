"""What is simulated: the scenario and its faults, the mesh, the model and what things cost."""
