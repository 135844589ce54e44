#!/bin/sh
# scripts/replay.sh [LINES]
#
# Replays a log of 10 million generated lines through a quota, with one thread on one core, with two
# threads on two cores, and with two programs at once, and through the same limit with a name. Reads
# the log with GoAccess for comparison. Prints the time, the processor time and the peak memory of
# each run, and fails if one thread and two decide differently. The log is written to
# target/replay.log, with 190 bytes a line, and removed at the end.
set -eu

lines=${1:-10000000}
target=${CARGO_TARGET_DIR:-target}
log=$target/replay.log
trap 'rm -f "$log"' EXIT

scripts/need.sh goaccess "which reads the same log" || true
"${CARGO:-cargo}" build --locked --release -p tollgate-cli --no-default-features

# 50 of the 20,000 clients send half of all requests, and times step back by up to half a minute.
awk -v lines="$lines" 'BEGIN {
	srand(1)
	paths = split("/ /articles/dynamic-dns/?flav=rss20&page=12 /favicon.ico /api/v1/users/1234/orders?limit=50 /css/style2.css", path, " ")
	agents = split("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/32.0 Safari/537.36|Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)|curl/8.5.0", agent, "|")
	for (line = 0; line < lines; line++) {
		client = int(rand() * (rand() < 0.5 ? 50 : 20000))
		second = int(line / 200) - int(rand() * 30)
		if (second < 0) second = 0
		second %= 86400
		printf "10.0.%d.%d - - [17/May/2015:%02d:%02d:%02d +0000] \"GET %s HTTP/1.1\" 200 %d \"https://example.org/search?q=rate+limit\" \"%s\"\n",
			client / 256, client % 256, second / 3600, second / 60 % 60, second % 60,
			path[1 + int(rand() * paths)], rand() * 200000, agent[1 + int(rand() * agents)]
	}
}' > "$log"

python3 - "$target/release/tollgate" "$log" "$lines" <<'PYTHON'
import hashlib, os, shutil, statistics, subprocess, sys, time

ROUNDS = 5
tollgate, log, lines = sys.argv[1], sys.argv[2], int(sys.argv[3])

def start(arguments, cores):
    pin = lambda: os.sched_setaffinity(0, cores)
    return subprocess.Popen(arguments, preexec_fn=pin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

def end(program):
    _, status, usage = os.wait4(program.pid, 0)
    assert status == 0, (program.args, status)
    return usage

def run(name, arguments, cores):
    """Runs a program on these cores, prints its figures, and returns its time."""
    if len(os.sched_getaffinity(0)) < len(cores):
        print(f"{name}: NOT DONE, as there are fewer than {len(cores)} cores")
        return None
    begin = time.monotonic()
    usage = end(start(arguments, cores))
    seconds = time.monotonic() - begin
    used = usage.ru_utime + usage.ru_stime
    print(f"{name}: {lines / seconds / 1e6:.2f} million lines/s, {seconds:.2f} s, {used:.2f} s of processor time "
          f"({lines / used / 1e6:.2f} million lines/s of one core), {usage.ru_maxrss / 1024:.0f} MiB")
    return seconds

def decisions(threads):
    arguments = [tollgate, "replay", log, "--limit", "30/min burst 10", "--decisions", "-", "--threads", threads]
    digest = hashlib.sha256()
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as program:
        for part in iter(lambda: program.stdout.read(1 << 20), b""):
            digest.update(part)
    assert program.returncode == 0
    return digest.hexdigest()

cores = sorted(os.sched_getaffinity(0))
replay = lambda threads: [tollgate, "replay", log, "--limit", "30/min burst 10", "--threads", threads]
def both():
    """Runs two programs at once, each on a core, and returns half of the time: no threads can be faster."""
    begin = time.monotonic()
    for program in [start(replay("1"), [core]) for core in cores[:2]]:
        end(program)
    return (time.monotonic() - begin) / 2

ratios, bounds = [], []
for _ in range(ROUNDS):
    one, two = run("replay, one core", replay("1"), cores[:1]), run("replay, two cores", replay("2"), cores[:2])
    named = [tollgate, "replay", log, "--limit", "per-ip=30/min burst 10 by ip", "--threads", "1"]
    run("replay of a limit with a name, one core", named, cores[:1])
    if two:
        ratios.append(one / two)
        bounds.append(one / both())
if ratios:
    print(f"two cores: {statistics.median(ratios):.2f} times as fast as one ({min(ratios):.2f} to {max(ratios):.2f}); "
          f"two programs at once: {statistics.median(bounds):.2f} times ({min(bounds):.2f} to {max(bounds):.2f})")
if shutil.which("goaccess"):
    run("GoAccess, one core", ["goaccess", log, "--log-format=COMBINED", "--no-progress", "-o", log + ".json"], cores[:1])
    os.remove(log + ".json")
if decisions("1") != decisions("2"):
    sys.exit("one thread and two decide differently")
print("one thread and two decide alike, byte for byte")
PYTHON
