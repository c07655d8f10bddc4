# SPDX-License-Identifier: Apache-2.0
"""Makes single allocations of a running server fail: the driver of tests/alloc/failing_malloc.c.

A scenario is a function that does one thing with the server (load a model, send one request) and returns what came of
it: OK, or the text of an error. It is run once while every chain of callers that allocates is noted, and then once for
each chain with the first allocation of that chain failing. The server must answer, go on, and lose no memory.
"""
import mmap
import random
import struct
import time

OFF, RECORD, FAIL = range(3)
SHOWN, CHAINS = 16, 1 << 16
MODE, TARGET, FAILED, BLOCKS, BYTES, COUNT = range(6)
WHERE, TABLE = 6, 6 + 2 * SHOWN
WORDS = TABLE + CHAINS
OK = "ok"


class Control:
    """The memory that the preloaded library shares with us, as 8-byte words."""

    def __init__(self, path):
        path.write_bytes(bytes(8 * WORDS))
        self.file = open(path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), 8 * WORDS)

    def get(self, word):
        return struct.unpack_from("<Q", self.map, 8 * word)[0]

    def put(self, word, value):
        struct.pack_into("<Q", self.map, 8 * word, value)

    def chains(self):
        return sorted({value for value in struct.unpack_from(f"<{CHAINS}Q", self.map, 8 * TABLE) if value})

    def forget_chains(self):
        self.map[8 * TABLE:] = bytes(8 * CHAINS)

    def where(self):
        """The chain that failed last, as module:offset, innermost caller first."""
        words = struct.unpack_from(f"<{2 * SHOWN}Q", self.map, 8 * WHERE)
        return [f"{module}:{offset:#x}" for offset, module in zip(words[:SHOWN], words[SHOWN:]) if offset]


class Failure(Exception):
    pass


class Campaign:
    """Runs scenarios against one server. problems: what went wrong, one text each."""

    WARM = 40  # runs after which the server's own caches have grown to what the scenario needs

    def __init__(self, server, control, seed=1):
        self.server, self.control, self.random = server, control, random.Random(seed)
        self.problems, self.counts = [], []

    def chains_of(self, scenario, runs=3):
        for _ in range(self.WARM):
            assert scenario() == OK, "the scenario does not work without failures"
        self.control.forget_chains()
        self.control.put(MODE, RECORD)
        for _ in range(runs):
            scenario()
        self.control.put(MODE, OFF)
        return self.control.chains()

    def inject(self, scenario, chain):
        """Whether the chain was met, and what the scenario returned."""
        before = self.control.get(FAILED)
        self.control.put(TARGET, chain)
        self.control.put(MODE, FAIL)
        try:
            outcome = scenario()
        except Exception as e:  # no answer at all
            outcome = f"{type(e).__name__}: {e}"
        self.control.put(MODE, OFF)
        self.control.put(TARGET, 0)
        return self.control.get(FAILED) > before, outcome

    def settled_blocks(self):
        """Blocks in use when the server has come to rest."""
        last, end = -1, time.monotonic() + 2
        while time.monotonic() < end:
            now = self.control.get(BLOCKS)
            if now == last:
                return now
            last = now
            time.sleep(0.005)
        return last

    def leaks(self, scenario, chain, rounds=8):
        """Blocks that each failure of this chain leaves behind.

        The server keeps freed blocks for later, up to a limit, and what a request keeps depends on which thread freed
        it. So rounds with and without the failure take turns: a leak is growth in every round with it that exceeds the
        growth of any round without.
        """
        failing, clean = [], []
        for _ in range(rounds):
            before = self.settled_blocks()
            if not self.inject(scenario, chain)[0]:
                return 0
            scenario()
            between = self.settled_blocks()
            scenario()
            scenario()
            failing.append(between - before)
            clean.append(self.settled_blocks() - between)
        return max(0, min(failing) - max(clean))

    def complain(self, name, chain, text):
        self.problems.append(f"{name}: {text}; allocation {chain:#x} at {' '.join(self.control.where())}")

    def one(self, name, scenario, chain, accept):
        before = self.settled_blocks()
        met, outcome = self.inject(scenario, chain)
        if not met:
            return False
        time.sleep(0.01)
        if not self.server.alive():
            self.complain(name, chain, f"the server ended with {self.server.process.poll()}")
            raise Failure("the server is gone")
        if outcome != OK and not accept(outcome):
            self.complain(name, chain, f"no clear error: {outcome!r}")
        again = scenario()
        if again != OK:
            self.complain(name, chain, f"afterwards the same fails: {again!r}")
            return True
        if self.settled_blocks() > before:
            lost = self.leaks(scenario, chain)
            if lost > 0:
                self.complain(name, chain, f"each failure leaves {lost} blocks behind")
        return True

    def run(self, name, scenario, accept, most=None, seconds=None):
        """Fails every chain of a scenario once, or `most` of them, or as many as `seconds` allow."""
        chains = self.chains_of(scenario)
        found = len(chains)
        self.random.shuffle(chains)
        end = time.monotonic() + seconds if seconds else None
        tried = met = 0
        for chain in chains[:most]:
            if end and time.monotonic() > end:
                break
            tried += 1
            met += any(self.one(name, scenario, chain, accept) for _ in range(3))
        self.counts.append((name, found, tried, met))
        return found, tried, met
