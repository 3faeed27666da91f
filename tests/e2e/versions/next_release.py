#!/usr/bin/env python3
"""Turn a copy of the sources into a release after this one, as far as the wire goes.

usage: tests/e2e/versions/next_release.py FOLDER

Its protocol is one higher. Every message but HELLO and REFUSE ends with fields of three kinds that this release does not
know, and an agent sends a message that this release does not know, NEWS, right behind its HELLO, before it can know who
answers. Nothing else is changed: what the two do together then is what the rules of lib/wire/README.md make of it.
"""
import re
import sys

NEWS = """
/* What only this release knows. */
MESSAGE(NEWS, news, 1999, CT_WIRE_CONTROL, CT_FROM_NODE,
        SINCE({protocol})
        FIELD(u64, number)
        STR(text, 100))
"""
FIELDS = "\n        SINCE({protocol})\n        FIELD(u64, news)\n        STR(remark, 100)\n        LIST(replica_silence, newer, 4)"


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def change(path: str, function: str, old: str, new: str) -> None:
    """Replace the first such words of a function, or fail: the sources are no longer what this script knows."""
    text = read(path)
    start = text.find(f"\n{function}(")
    at = text.find(old, start)
    if start < 0 or not start < at < text.find("\n}\n", start):
        sys.exit(f"next_release.py: {path} has no {function} with {old!r}")
    write(path, text[:at] + new + text[at + len(old) :])


def end_of(text: str, start: int) -> int:
    """Where the bracket that is opened at `start` is closed; brackets in comments come in pairs."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    sys.exit("next_release.py: wire.def ends inside a message")


def main() -> None:
    folder = sys.argv[1]
    header = f"{folder}/lib/wire/wire.h"
    found = re.search(r"CT_WIRE_PROTOCOL = (\d+),", read(header))
    if found is None:
        sys.exit("next_release.py: wire.h names no CT_WIRE_PROTOCOL")
    protocol = int(found.group(1)) + 1
    write(header, read(header).replace(found.group(0), f"CT_WIRE_PROTOCOL = {protocol},"))

    table = f"{folder}/lib/wire/wire.def"
    text = read(table)
    for name in reversed(list(re.finditer(r"^MESSAGE\((\w+)", text, re.MULTILINE))):
        if name.group(1) not in ("HELLO", "REFUSE"):
            at = end_of(text, name.start() + len("MESSAGE"))
            text = text[:at] + FIELDS.format(protocol=protocol) + text[at:]
    # A record has to stand before the first message that has a list of it.
    silence = re.search(r"^RECORD\(replica_silence,.*?\)\)\n", text, re.MULTILINE | re.DOTALL)
    first = text.find("/* ---- node link: opening")
    if silence is None or first < 0:
        sys.exit("next_release.py: wire.def has no record replica_silence, or no first message")
    text = text[:first] + silence.group(0) + text[first : silence.start()] + text[silence.end() :]
    write(table, text + NEWS.format(protocol=protocol))

    sent = "    send_message(member, &message);\n"
    change(
        f"{folder}/rendezvous/client/member_send.c",
        "void ct_member_send_hello",
        sent,
        sent
        + "    const struct ct_message news = {.type = CT_MSG_NEWS, .news = {.number = 7}};\n"
        + "    send_message(member, &news);\n",
    )
    change(
        f"{folder}/rendezvous/service/service.c",
        "void ct_service_message",
        "    if (link == NULL)\n",
        "    if (link == NULL || message->type == CT_MSG_NEWS)\n",
    )


main()
