"""Stands between an SFTP client and OpenSSH's server and spoils what passes: sftp.py SERVER SPOILS."""

import os
import struct
import subprocess
import sys
import threading

CLOSE, WRITE, FSETSTAT, SETSTAT, REALPATH, EXTENDED = 4, 6, 10, 9, 16, 200
STATUS, DATA, NAME, ATTRS = 101, 103, 104, 105
OK, PERMISSION_DENIED, FAILURE = 0, 3, 4

spoils = sys.argv[2]
server = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
asked = {}
lock = threading.Lock()


def packets(stream):
    while len(head := stream.read(4)) == 4:
        yield stream.read(struct.unpack(">I", head)[0])


def send(stream, packet):
    with lock:
        stream.write(struct.pack(">I", len(packet)) + packet)
        stream.flush()


def status(request, code):
    return struct.pack(">BII", STATUS, request, code) + struct.pack(">I", 4) + b"odd!" + struct.pack(">I", 0)


def string(packet, place):
    end = place + 4 + struct.unpack_from(">I", packet, place)[0]
    return packet[place + 4 : end], end


def other_size(packet, place):
    """The attributes at `place` without their size, or with one that is too short, and where they end."""
    flags = struct.unpack_from(">I", packet, place)[0]
    start = place + 4 + (8 if flags & 1 else 0)
    end = start + (8 if flags & 2 else 0) + (4 if flags & 4 else 0) + (8 if flags & 8 else 0)
    if spoils == "short":
        size = struct.unpack_from(">Q", packet, place + 4)[0]
        return struct.pack(">IQ", flags, max(size - 7, 0)) + packet[start:end], end
    return struct.pack(">I", flags & ~1) + packet[start:end], end


def spoiled(packet, kind, request):
    """What the client is answered."""
    if spoils in ("sizes", "short") and packet[0] == ATTRS:
        return packet[:5] + other_size(packet, 5)[0]
    if spoils in ("sizes", "short") and packet[0] == NAME and kind != REALPATH:
        count = struct.unpack_from(">I", packet, 5)[0]
        parts, place = [packet[:9]], 9
        for _ in range(count):
            names = string(packet, string(packet, place)[1])[1]
            attributes, end = other_size(packet, names)
            parts += [packet[place:names], attributes]
            place = end
        return b"".join(parts)
    if spoils == "closes" and kind == CLOSE:
        return status(request, FAILURE)
    if spoils == "attributes" and kind in (SETSTAT, FSETSTAT):
        return status(request, PERMISSION_DENIED)
    if spoils == "reads" and packet[0] == DATA:
        data, _ = string(packet, 5)
        return packet[:5] + struct.pack(">I", len(data) + 7) + data + b"surplus"
    return packet


def answer():
    for packet in packets(server.stdout):
        request = struct.unpack_from(">I", packet, 1)[0]
        kind = asked.pop(request, 0)
        if spoils == "renames" and kind == "rename" and not os.path.exists(sys.argv[3]):
            open(sys.argv[3], "w").close()
            server.kill()
            os._exit(1)
        send(sys.stdout.buffer, spoiled(packet, kind, request))


threading.Thread(target=answer, daemon=True).start()
for packet in packets(sys.stdin.buffer):
    request = struct.unpack_from(">I", packet, 1)[0]
    kind = packet[0]
    if spoils in ("writes", "quota") and kind == WRITE:
        send(sys.stdout.buffer, status(request, OK if spoils == "writes" else FAILURE))
        continue
    is_rename = kind == EXTENDED and string(packet, 5)[0].startswith(b"posix-rename")
    if spoils == "keeps-old" and is_rename:
        os.remove(string(packet, string(packet, 5)[1])[0])
    if spoils in ("only-says", "keeps-old") and is_rename:
        send(sys.stdout.buffer, status(request, OK))
        continue
    asked[request] = "rename" if is_rename else kind
    server.stdin.write(struct.pack(">I", len(packet)) + packet)
    server.stdin.flush()
