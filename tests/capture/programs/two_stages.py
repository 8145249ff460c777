"""Items through two processes: encode and decode here, a longer stage in another; queues of two in and one out."""

import multiprocessing
import os
import sys
import time

ITEMS, SHORT, LONG = 12, 0.004, 0.02


def mesh(inbox, outbox, folder):
    os.environ["RANK"] = "1"
    from stepscope.annotate import items

    if folder:
        items.log(folder)
    while (k := inbox.get()) is not None:
        with items.stage1(k):
            time.sleep(LONG)
        outbox.put(k)


def first(inbox, outbox, folder):
    from stepscope.annotate import items

    items.log(folder, queue_in=2, queue_out=1)
    back = sent = 0
    while back < ITEMS:
        if sent < ITEMS and sent - back < 4:
            with items.stage0(sent):
                time.sleep(SHORT)
            inbox.put(sent)
            items.sent(sent)
            sent += 1
            continue
        k = outbox.get()
        with items.decode(k):
            time.sleep(SHORT)
        items.emitted(k, tokens=100)
        back += 1
    inbox.put(None)


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    fork = multiprocessing.get_context("spawn")
    queues = fork.Queue(2), fork.Queue(1)
    other = fork.Process(target=mesh, args=(*queues, folder))
    other.start()
    first(*queues, folder)
    other.join()
