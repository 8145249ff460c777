"""One rank as arrays: its ops, its calls and what each does, launches, ranges and how they nest; what a question needs.

Everything else starts here: whatever looks at events looks at them one rank at a time, as columns.
"""
