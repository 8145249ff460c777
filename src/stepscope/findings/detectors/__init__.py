"""One file per thing that can be wrong: `ID`, a docstring that says what and why, and `detect(case)`."""
