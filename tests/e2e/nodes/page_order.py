"""Give an order on the page, as its script does (rendezvous/page/order.h), and print status and answer.

usage: page_order.py URL KEY_FILE VERB JOB HOST AUTHOR REASON [TIMES]
"""
import hashlib
import hmac
import sys
import urllib.error
import urllib.request

url, key_file, *order = sys.argv[1:8]
times = int(sys.argv[8]) if len(sys.argv) > 8 else 1


def ask(data=None):
    try:
        with urllib.request.urlopen(url + "/orders", data, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def mark(key, text):
    return hmac.new(key, text, hashlib.sha256).digest()


with open(key_file, "rb") as file:
    key = file.read()
derived = mark(key, b"ctrun/1 page orders")
key_id = mark(key, b"ctrun/1 key tag")[:8].hex()
_, nonce = ask()
text = "\n".join([f"ctrun page order 2 {key_id}", nonce.strip(), "1"] + order).encode()
for _ in range(times):
    print(*ask(text + b"\n" + mark(derived, text).hex().encode()))
