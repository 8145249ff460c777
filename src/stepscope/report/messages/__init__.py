"""What a report's page carries, declared once: `docs/page_messages.py` writes page/src/messages.ts from it.

Times are nanoseconds. Rows are those of an analysis; of their columns, those are named that the page shows.
"""
