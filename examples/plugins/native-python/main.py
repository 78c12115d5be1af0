#!/usr/bin/env python3
"""A native plugin in Python with grpcio alone: it tells which labels a change has added, removed or modified.

The messages are few and flat, so they are read and written here, byte by byte, rather than by generated code: with grpcio-tools
and sdk/proto/plugin/v1/plugin.proto a plugin gets classes instead. docs/ABI.md has the protocol.
"""

import json
import os
import signal
import sys
import threading
from concurrent import futures

try:
    import grpc
except ImportError:
    sys.exit("native-python needs grpcio: pip install grpcio")


# Protocol buffers: a message is fields of a number, a wire type (0: varint, 2: length and bytes) and a value.


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read(data):
    """Yields (number, value) of each field; a value is an int or bytes."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = read_varint(data, at)
        elif kind == 2:
            size, at = read_varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"wire type {kind}")
        yield tag >> 3, value


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value) if value else b""
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


# The service deltarouter.plugin.v1.Handler.

VERDICT_FAIL = 3
NEW_OBJECT, OLD_OBJECT = 10, 11  # of Delta; what else it says stands in plugin.proto, and may be absent


def describe(_request, _context):
    return field(1, "native-python") + field(2, "1.0.0")


def configure(request, _context):
    config = json.loads(dict(read(request)).get(1, b"null"))
    return b"" if config is None else field(1, "this plugin has no configuration")


def handle(request, _context):
    deltas = [value for number, value in read(request) if number == 2]
    answer = b""
    for i, delta in enumerate(deltas):
        try:
            event = labels_changed(dict(read(delta)))
            result = field(5, field(3, json.dumps(event))) if event else b""
        except Exception as problem:  # one delta's trouble is not that of the batch
            result = field(2, VERDICT_FAIL) + field(3, str(problem))
        answer += field(1, field(1, i) + result)
    return answer


def labels_changed(delta):
    old, new = (labels(delta.get(number, b"")) for number in (OLD_OBJECT, NEW_OBJECT))
    changed = {key: [old.get(key), new.get(key)] for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    return {"name": delta.get(7, b"").decode(), "labels": dict(sorted(changed.items()))} if changed else None


def labels(text):
    return json.loads(text or b"{}").get("metadata", {}).get("labels") or {}


def health(_request, _context):
    return field(1, 1)  # SERVING


def methods(service, **functions):
    # Without serializers grpcio hands over bytes.
    return grpc.method_handlers_generic_handler(
        service, {name: grpc.unary_unary_rpc_method_handler(function) for name, function in functions.items()}
    )


def main():
    if os.environ.get("DELTAROUTER_PLUGIN") != "b1f29d52-handler":
        sys.exit("this is a plugin: a router starts it")
    if "1" not in os.environ["PLUGIN_PROTOCOL_VERSIONS"].split(","):
        sys.exit("the router speaks another version of the protocol")
    if "PLUGIN_CLIENT_CERT" in os.environ:
        sys.exit("this plugin does not speak TLS: set tls: false")
    largest, calls = int(os.environ["DELTAROUTER_MAX_MESSAGE"]), int(os.environ["DELTAROUTER_MAX_CALLS"])
    server = grpc.server(
        futures.ThreadPoolExecutor(calls + 2),  # health is asked for while all calls are under way
        options=[("grpc.max_receive_message_length", largest), ("grpc.max_send_message_length", -1)],
    )
    server.add_generic_rpc_handlers((
        methods("deltarouter.plugin.v1.Handler", Describe=describe, Configure=configure, Handle=handle),
        methods("grpc.health.v1.Health", Check=health),
    ))
    address = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "plugin")
    server.add_insecure_port("unix:" + address)
    server.start()
    print(f"1|1|unix|{address}|grpc", flush=True)

    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), told.set()), daemon=True).start()  # its end: the router is gone
    told.wait()
    server.stop(1).wait()


main()
