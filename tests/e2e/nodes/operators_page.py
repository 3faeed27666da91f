"""Run each command of the operators' page (cmd/ctrund/OPERATORS.md) as it stands.

usage: unshare --net --pid --fork --kill-child --mount-proc python3 operators_page.py PAGE PROGRAMS FOLDER

Hosts are name spaces of mounts and names (unshare) with an /etc, a /var/lib and a /home of their own, in one
network of its own in which their names are addresses of loopback. `systemctl` and `scp` stand in for the real ones,
which `make deb-check` has: they start, reload and stop the host's ctrund with its file, and copy from one host's
folder to another's. A block runs on the hosts that its first line names; "any": on one of them at least it works.
A line "#= WORDS" must be in what the block printed up to then, within a few seconds.
"""
import os
import re
import shutil
import subprocess
import sys
import time

page, programs, folder = sys.argv[1:4]
HOSTS = {"h0": "127.0.0.11", "h1": "127.0.0.12", "h2": "127.0.0.13", "node0": "127.0.0.21"}
KEPT = ("etc", "var/lib", "home", "root")
WAIT_S = 15

STAND_INS = {
    "systemctl": r"""#!/bin/bash
set -euo pipefail
pid=/var/lib/ctrund.pid log=/var/lib/ctrund.log
start() {
    mkdir -p -m 0700 /var/lib/ctrund
    setsid ctrund --config /etc/ctrun/ctrund.yaml >>$log 2>&1 </dev/null & echo $! >$pid
    for _ in {1..100}; do ! grep -q 'listens on' $log || return 0; sleep 0.05; done
    cat $log; return 1
}
stop() { kill "$(<$pid)"; while readlink /proc/$(<$pid)/exe >/dev/null; do sleep 0.02; done; : >$log; }
case $1 in
enable | start) start ;;
stop) stop ;;
restart) stop; start ;;
reload) n=$(grep -c SIGHUP $log || true); kill -HUP "$(<$pid)"; while [ "$(grep -c SIGHUP $log)" -le "$n" ]; do sleep 0.02; done ;;
status) echo "ctrund.service, pid $(<$pid)"; kill -0 "$(<$pid)" ;;
esac
""",
    "scp": r"""#!/bin/bash
set -euo pipefail
[ "$1" = -p ]; shift
to=${!#} files=("${@:1:$#-1}")
mkdir -p "$FOLDER/${to%%:*}$(dirname "${to#*:}x")"
cp -p "${files[@]}" "$FOLDER/${to%%:*}${to#*:}"
""",
}


def blocks(text):
    for match in re.finditer(r"^```sh\n# ([^\n]*)\n(.*?)^```$", text, re.M | re.S):
        names = re.findall(r"\b(?:h\d|node\d|any)\b", match[1])
        yield text[: match.start()].count("\n") + 1, names, match[2]


def make_hosts():
    os.makedirs(f"{folder}/bin")
    for name, text in STAND_INS.items():
        with open(f"{folder}/bin/{name}", "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(file.name, 0o755)
    for host in HOSTS:
        for path in KEPT[1:]:
            os.makedirs(f"{folder}/{host}/{path}")
        shutil.copytree("/etc", f"{folder}/{host}/etc", symlinks=True, ignore_dangling_symlinks=True)
        os.makedirs(f"{folder}/{host}/etc/ctrun", exist_ok=True)
        with open(f"{folder}/{host}/etc/hosts", "w", encoding="utf-8") as file:
            file.write("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in HOSTS.items()))


def run(host, script):
    """What the script printed on the host, and its status."""
    mounts = "".join(f"mount --bind {folder}/{host}/{path} /{path}\n" for path in KEPT)
    awaited = f"""
log={folder}/{host}.said
wait_for() {{ for _ in {{1..200}}; do ! grep -q "$1" $log || return 0; sleep 0.05; done; return 1; }}
"""
    with open(f"{folder}/{host}.said", "w", encoding="utf-8") as said:
        status = subprocess.run(
            ["unshare", "--mount", "--uts", "bash", "-euo", "pipefail", "-c", f"hostname {host}\n{mounts}{awaited}{script}"],
            stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=30, check=False,
            env=os.environ | {"PATH": f"{folder}/bin:{programs}:{os.environ['PATH']}", "FOLDER": folder, "HOME": "/root"}).returncode
    with open(f"{folder}/{host}.said", encoding="utf-8") as said:
        return status, said.read()


def works(host, script):
    """Run the commands, again and again until they print what they must."""
    commands, wanted = [], []
    for line in script.splitlines():
        (wanted if line.startswith("#= ") else commands).append(line.removeprefix("#= "))
    until = time.monotonic() + WAIT_S
    while True:
        status, said = run(host, "\n".join(commands))
        if status == 0 and all(words in said for words in wanted):
            return True, said
        if not wanted or time.monotonic() > until:
            return False, said


def main():
    with open(page, encoding="utf-8") as file:
        text = file.read()
    make_hosts()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    count = 0
    for line, hosts, script in blocks(text):
        results = [works(host, script) for host in (["h0", "h1", "h2"] if hosts == ["any"] else hosts)]
        good = [result[0] for result in results]
        if not (any(good) if hosts == ["any"] else all(good)):
            sys.exit(f"{page}:{line}: on {hosts}: {[said for is_good, said in results if not is_good]}")
        count += sum(1 for row in script.splitlines() if row.strip() and not row.startswith("#"))
    print(f"{count} lines of commands were run")


main()
