"""A plug-in that does what it is told to do wrong.

Its settings say what: "fault" names a function below, "folder" is where it leaves its process id
and counts its starts. What no fault takes over, it answers rightly: there is one file, "file", of
100,000 bytes.
"""

import json
import os
import subprocess
import sys
import time

SIZE = 100000
CONTENT = bytes(i * 31 % 251 for i in range(SIZE))

stdin = open(0, "rb", closefd=False)


def write(message, payload=b""):
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n" + payload)
    sys.stdout.buffer.flush()


def raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def read():
    line = stdin.readline()
    if not line:
        sys.exit(0)
    message = json.loads(line)
    if "data" in message:
        stdin.read(message["data"])
    return message


def hello(**more):
    answer = {
        "protocol": 1,
        "name": "rogue",
        "version": "13",
        "capabilities": {"lists": True, "ranges": True, "writes": True, "segments_in_any_order": True},
        "limits": {"requests_max": 8},
    }
    answer.update(more)
    write({"hello": answer})


def answer(message):
    op, number = message.get("op"), message["id"]
    if op == "stat":
        there = message["path"] == "file"
        write({"id": number, "done": {"entry": {"kind": "file", "size": SIZE} if there else None}})
    elif op == "read":
        start = message["offset"]
        data = CONTENT[start : start + message["length"]]
        if data:
            write({"id": number, "data": len(data)}, data)
        write({"id": number, "done": {}})
    elif op == "create":
        write({"id": number, "done": {"file": "unfinished", "held": False}})
    elif op in ("commit", "discard"):
        write({"id": number, "done": {}})
    elif op in ("put", "write"):
        pass
    elif "data" in message:
        write({"id": number, "credit": message["data"]})
    elif "end" in message:
        write({"id": number, "done": {}})
    elif op is not None:
        write({"id": number, "error": {"kind": "unsupported"}})


def serve(special=lambda message: False):
    hello()
    while True:
        message = read()
        if not special(message):
            answer(message)


def complain(text):
    print(text, file=sys.stderr, flush=True)


# At the start.


def dies_at_start():
    complain("a first line")
    complain("the robot is on fire")
    sys.exit(3)


def is_silent_at_start():
    time.sleep(600)


def speaks_a_later_version():
    write({"hello": {"protocol": 2, "capabilities": "as in version 2"}})
    read()


def refuses():
    secret = greeting["profile"]["password"]
    write({"error": {"kind": "unauthenticated", "cause": "bad password " + secret, "hint": "ask"}})


def does_not_say_hello():
    write({"id": 1, "done": {}})
    read()


# Deaths.


def dies_in_read():
    def special(message):
        if message.get("op") == "read" and starts == 1:
            write({"id": message["id"], "data": 1000}, CONTENT[:500])
            complain("segmentation fault, or so")
            os._exit(7)

    serve(special)


def dies_in_write():
    def special(message):
        if "data" in message and starts == 1:
            os._exit(7)

    serve(special)


def dies_always():
    def special(message):
        if "op" in message:
            complain("no luck today")
            os._exit(1)

    serve(special)


def dies_at_the_second_start():
    if starts > 1:
        sys.exit(4)
    dies_always()


# Hanging.


def hangs():
    def special(message):
        if message.get("op") == "stat" and starts == 1:
            time.sleep(600)

    serve(special)


def does_not_read():
    hello(limits={"requests_max": 8, "window_bytes": 1 << 30})
    time.sleep(600)


def is_slow():
    def special(message):
        if message.get("op") == "stat":
            for _ in range(7):
                time.sleep(1)
                write({"id": message["id"], "alive": True})

    serve(special)


def ignores_cancels():
    def special(message):
        if message.get("op") == "read":
            write({"id": message["id"], "data": 1000}, CONTENT[:1000])
            return True
        return "cancel" in message

    serve(special)


def ends_cancels():
    cancelled = []

    def special(message):
        if message.get("op") == "read":
            write({"id": message["id"], "data": 1000}, CONTENT[:1000])
            return True
        if "cancel" in message:
            cancelled.append(message["id"])
            write({"id": message["id"], "error": {"kind": "cancelled"}})
            return True
        if message.get("op") == "read-link":
            write({"id": message["id"], "done": {"target": str(len(cancelled))}})
            return True

    serve(special)


def ignores_the_end():
    hello()
    child = subprocess.Popen(["sleep", "600"])
    with open(os.path.join(folder, "child"), "w") as file:
        file.write(str(child.pid))
    while True:
        line = stdin.readline()
        if not line:
            time.sleep(600)
        answer(json.loads(line))


# Nonsense.


def on_stat(reply):
    def special(message):
        if message.get("op") == "stat" and starts == 1:
            reply(message["id"])
            return True

    serve(special)


def writes_garbage():
    on_stat(lambda number: raw(b"Traceback: \x1b[31m all is lost\n"))


def writes_an_endless_line():
    on_stat(lambda number: raw(b"{" + b" " * (2 << 20)))


def answers_nobody():
    on_stat(lambda number: write({"id": number + 1000, "done": {}}))


def answers_twice():
    on_stat(lambda number: [write({"id": number, "done": {}}) for _ in range(2)])


def sends_what_nobody_asked_for():
    on_stat(lambda number: write({"id": number, "data": 3}, b"abc"))


def on_read(reply):
    def special(message):
        if message.get("op") == "read" and starts == 1:
            reply(message["id"], message["length"])
            return True

    serve(special)


def sends_too_much():
    on_read(lambda number, length: write({"id": number, "data": length + 1}, CONTENT + b"x"))


def sends_too_large_a_payload():
    on_read(lambda number, length: write({"id": number, "data": 1 << 30}))


def announces_more_than_it_sends():
    def reply(number, length):
        write({"id": number, "data": length}, CONTENT[: length - 10])
        for _ in range(3):
            write({"id": number, "done": {}})

    on_read(reply)


def sends_too_little():
    def reply(number, length):
        write({"id": number, "data": 10}, CONTENT[:10])
        write({"id": number, "done": {}})

    on_read(reply)


def has_no_patience_for_credit():
    def reply(number, length):
        for _ in range(9):
            write({"id": number, "data": 1 << 18}, bytes(1 << 18))

    on_read(reply)


def is_done_too_early():
    def special(message):
        if message.get("op") in ("put", "write"):
            write({"id": message["id"], "done": {}})
            return True

    serve(special)


def lists_a_way_out():
    def special(message):
        if message.get("op") == "list":
            entries = [{"name": "..%2Fetc", "kind": "file", "size": 1}]
            write({"id": message["id"], "done": {"entries": entries}})
            return True

    serve(special)


def lists_for_ever():
    def special(message):
        if message.get("op") == "list":
            write({"id": message["id"], "done": {"entries": [], "next": 1}})
            return True

    serve(special)


def floods_standard_error():
    for _ in range(1000):
        sys.stderr.write("x" * 100000 + "\n")
    serve()


def counts_requests():
    """Answers only when nothing more comes, and tells how many there were at once."""
    hello(limits={"requests_max": 8})
    import select

    waiting = []
    most = 0
    while True:
        ready, _, _ = select.select([0], [], [], 0.5)
        if ready:
            # One line at a time, unbuffered, or select would not see what was read ahead.
            line = b""
            while not line.endswith(b"\n"):
                byte = os.read(0, 1)
                if not byte:
                    sys.exit(0)
                line += byte
            waiting.append(json.loads(line))
            most = max(most, len(waiting))
            continue
        for message in waiting:
            entry = {"kind": "file", "size": most}
            write({"id": message["id"], "done": {"entry": entry}})
        waiting = []


if __name__ == "__main__":
    greeting = read()["hello"]
    folder = greeting["settings"]["folder"]
    with open(os.path.join(folder, "starts"), "a") as file:
        file.write("%d\n" % os.getpid())
    with open(os.path.join(folder, "starts")) as file:
        starts = len(file.readlines())
    globals()[greeting["settings"]["fault"]]()
