"""Why a job does not go on: who waits for whom across process groups, and for whom everybody waits.

Of dumps of the flight recorder (`model.flight`), not of a profile.
"""
